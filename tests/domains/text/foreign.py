"""Small tokenizers as others have them: WordPiece of BERT, byte pairs of GPT-2."""

import tokenizers

TEXTS = ["the cat sat on the mat", "a dog", "the dog saw that the cat sat", "on", "a mat and a cat and a dog and a mat"]
CORPUS = [*TEXTS, "cats and dogs sat and saw mats", "that that is is that that is not is not"]


def wordpiece():
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=60, special_tokens=special, show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return made, {f"{role}_token": name for role, name in names.items()}


def byte_pairs(special=("<|endoftext|>",), frame=()):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    options = {"vocab_size": 300, "special_tokens": list(special), "show_progress": False}
    made.train_from_iterator(CORPUS, tokenizers.trainers.BpeTrainer(initial_alphabet=letters, **options))
    if frame:
        ids = [(name, made.token_to_id(name)) for name in frame]
        single = " ".join([frame[0], "$A", *frame[1:]])
        made.post_processor = tokenizers.processors.TemplateProcessing(single=single, special_tokens=ids)
    return made
