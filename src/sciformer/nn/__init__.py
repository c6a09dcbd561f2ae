"""The transformer, part by part: flat arguments, no configuration objects, no domain words.

Shapes have one legend: B batch, N tokens, M memory tokens, D width, H heads, G key-value heads, E width of a head,
T packed tokens, A axes. A mask is called `valid` and is True where the token is real.
"""

from .attention import Attention
from .blocks import MLP, NORMFORMER, Block, ClassBlock
from .cache import Cache
from .conformer import Conformer, ConformerBlock
from .convolution import ConvNet
from .edges import EdgeConv, EdgeNet
from .heads import ClassHead, Gaussian, QuantileHead, TagHead, ValueHead, pinball
from .kernels import attend, choose
from .kernels.reference import weigh
from .layout import Layout
from .lorentz import LorentzNet
from .norms import BatchNorm, DropPath, make_norm
from .pairs import PairBias, PairEmbedding, Triangle
from .patterns import Causal, Documents, Full, Global, Pattern, Sight, Strided, Window
from .points import PointNet
from .pooling import (
    AttentionPool,
    BlockPool,
    ClassAttention,
    ClassToken,
    FirstPool,
    LastPool,
    MaxPool,
    MeanPool,
    RecurrentPool,
    SumPool,
)
from .positions import Fourier, Learned, Position, RelativeBias, Rotary, Sinusoidal, grid, rotate
from .ragged import Ragged
from .recurrent import Cell, Recurrent
from .recurrent_decoder import RecurrentDecoder
from .resnet import ResNet
from .resnet2d import ResNet2d
from .scores import SCORES, Additive, Content, Dot, General, Location, ScaledDot, Score, make_score
from .sets import DeepSet
from .transformer import Decoder, Encoder, EncoderDecoder, Transformer
from .watch import Watch
from .waves import Modulation, Unpaired

__all__ = [
    "MLP",
    "NORMFORMER",
    "SCORES",
    "Additive",
    "Attention",
    "AttentionPool",
    "BatchNorm",
    "Block",
    "BlockPool",
    "Cache",
    "Causal",
    "Cell",
    "ClassAttention",
    "ClassBlock",
    "ClassHead",
    "ClassToken",
    "Conformer",
    "ConformerBlock",
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
    "Modulation",
    "PairBias",
    "PairEmbedding",
    "Pattern",
    "PointNet",
    "Position",
    "QuantileHead",
    "Ragged",
    "Recurrent",
    "RecurrentDecoder",
    "RecurrentPool",
    "RelativeBias",
    "ResNet",
    "ResNet2d",
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
    "Unpaired",
    "ValueHead",
    "Watch",
    "Window",
    "attend",
    "choose",
    "grid",
    "make_norm",
    "make_score",
    "pinball",
    "rotate",
    "weigh",
]
