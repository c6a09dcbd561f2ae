"""The transformer, part by part: flat arguments, no configuration objects, no domain words.

Shapes have one legend: B batch, N tokens, M memory tokens, D width, H heads, G key-value heads, E width of a head,
T packed tokens, A axes. A mask is called `valid` and is True where the token is real.
"""

from .attention import Attention
from .blocks import MLP, NORMFORMER, Block, ClassBlock
from .cache import Cache
from .convolution import ConvNet
from .edges import EdgeConv, EdgeNet
from .heads import ClassHead, Gaussian, TagHead, ValueHead
from .kernels import attend, choose
from .kernels.reference import weigh
from .layout import Layout
from .lorentz import LorentzNet
from .norms import BatchNorm, DropPath, make_norm
from .pairs import PairBias, PairEmbedding, Triangle
from .patterns import Causal, Documents, Full, Global, Pattern, Sight, Strided, Window
from .points import PointNet
from .pooling import AttentionPool, ClassAttention, ClassToken, FirstPool, LastPool, MaxPool, MeanPool, SumPool
from .positions import Fourier, Learned, Position, RelativeBias, Rotary, Sinusoidal, grid, rotate
from .ragged import Ragged
from .recurrent import Cell, Recurrent
from .recurrent_decoder import RecurrentDecoder
from .resnet import ResNet
from .scores import SCORES, Additive, Content, Dot, General, Location, ScaledDot, Score, make_score
from .sets import DeepSet
from .transformer import Decoder, Encoder, EncoderDecoder, Transformer
from .watch import Watch

__all__ = [
    "MLP",
    "NORMFORMER",
    "SCORES",
    "Additive",
    "Attention",
    "AttentionPool",
    "BatchNorm",
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
    "DeepSet",
    "Documents",
    "Dot",
    "DropPath",
    "EdgeConv",
    "EdgeNet",
    "Encoder",
    "EncoderDecoder",
    "FirstPool",
    "Fourier",
    "Full",
    "Gaussian",
    "General",
    "Global",
    "LastPool",
    "Layout",
    "Learned",
    "Location",
    "LorentzNet",
    "MaxPool",
    "MeanPool",
    "PairBias",
    "PairEmbedding",
    "Pattern",
    "PointNet",
    "Position",
    "Ragged",
    "Recurrent",
    "RecurrentDecoder",
    "RelativeBias",
    "ResNet",
    "Rotary",
    "ScaledDot",
    "Score",
    "Sight",
    "Sinusoidal",
    "Strided",
    "SumPool",
    "TagHead",
    "Transformer",
    "Triangle",
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
