"""The transformer, part by part: flat arguments, no configuration objects, no domain words.

Shapes have one legend: B batch, N tokens, M memory tokens, D width, H heads, G key-value heads, E width of a head,
T packed tokens, A axes. A mask is called `valid` and is True where the token is real.
"""

from .attention import Attention
from .blocks import MLP, NORMFORMER, Block, ClassBlock
from .cache import Cache
from .convolution import ConvNet
from .heads import ClassHead, Gaussian, TagHead, ValueHead
from .kernels import attend, choose
from .kernels.reference import weigh
from .norms import DropPath, make_norm
from .patterns import Causal, Documents, Full, Global, Pattern, Sight, Strided, Window
from .pooling import AttentionPool, ClassAttention, ClassToken, FirstPool, LastPool, MaxPool, MeanPool
from .positions import Fourier, Learned, Position, RelativeBias, Rotary, Sinusoidal, grid, rotate
from .ragged import Ragged
from .recurrent import Cell, Recurrent
from .recurrent_decoder import RecurrentDecoder
from .scores import SCORES, Additive, Content, Dot, General, Location, ScaledDot, Score, make_score
from .transformer import Decoder, Encoder, EncoderDecoder, Transformer
from .watch import Watch

__all__ = [
    "MLP",
    "NORMFORMER",
    "SCORES",
    "Additive",
    "Attention",
    "AttentionPool",
    "Block",
    "Cache",
    "Causal",
    "Cell",
    "ClassAttention",
    "ClassBlock",
    "ClassHead",
    "ClassToken",
    "Content",
    "ConvNet",
    "Decoder",
    "Documents",
    "Dot",
    "DropPath",
    "Encoder",
    "EncoderDecoder",
    "FirstPool",
    "Fourier",
    "Full",
    "Gaussian",
    "General",
    "Global",
    "LastPool",
    "Learned",
    "Location",
    "MaxPool",
    "MeanPool",
    "Pattern",
    "Position",
    "Ragged",
    "Recurrent",
    "RecurrentDecoder",
    "RelativeBias",
    "Rotary",
    "ScaledDot",
    "Score",
    "Sight",
    "Sinusoidal",
    "Strided",
    "TagHead",
    "Transformer",
    "ValueHead",
    "Watch",
    "Window",
    "attend",
    "choose",
    "grid",
    "make_norm",
    "make_score",
    "rotate",
    "weigh",
]
