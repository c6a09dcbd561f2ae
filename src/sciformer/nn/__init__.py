"""Neural network modules: attention, transformers, other trunks, poolings, heads.

Modules take plain arguments instead of configuration objects, and do not depend on any scientific field.

Shapes: B batch, N tokens, M memory tokens, D width, H heads, G key-value heads, E width of a head,
T packed tokens, A axes. A mask is called `valid` and is True where the token is real.
"""

from .attention.attention import Attention
from .attention.cache import Cache
from .attention.kernels import Request, attend, choose
from .attention.kernels.reference import weigh
from .attention.masks import Causal, Documents, Full, Global, Pattern, Sight, Strided, Window
from .attention.pair_bias import PairBias, PairEmbedding, Triangle
from .attention.scores import SCORES, Additive, Content, Dot, General, Location, ScaledDot, Score, make_score
from .blocks import MLP, NORMFORMER, Block, ClassBlock
from .heads import ClassHead, Gaussian, QuantileHead, TagHead, ValueHead, pinball
from .layout import Layout
from .norms import BatchNorm, DropPath, make_norm
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
from .positions import (
    Fourier,
    Learned,
    Modulation,
    Position,
    RelativeBias,
    Rotary,
    Sinusoidal,
    UnpairedSinusoidal,
    grid,
    rotate,
)
from .ragged import Ragged
from .transformer import Decoder, Encoder, EncoderDecoder, Transformer
from .trunks.conformer import Conformer, ConformerBlock
from .trunks.convolution import ConvNet
from .trunks.deep_sets import DeepSets
from .trunks.edge_conv import EdgeConv, EdgeConvNet
from .trunks.point_cloud_transformer import PointCloudTransformer
from .trunks.recurrent import Cell, Recurrent
from .trunks.recurrent_decoder import RecurrentDecoder
from .trunks.resnet import ResNet
from .trunks.resnet2d import ResNet2d
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
    "DeepSets",
    "Documents",
    "Dot",
    "DropPath",
    "EdgeConv",
    "EdgeConvNet",
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
    "MaxPool",
    "MeanPool",
    "Modulation",
    "PairBias",
    "PairEmbedding",
    "Pattern",
    "PointCloudTransformer",
    "Position",
    "QuantileHead",
    "Ragged",
    "Recurrent",
    "RecurrentDecoder",
    "RecurrentPool",
    "RelativeBias",
    "Request",
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
    "UnpairedSinusoidal",
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
