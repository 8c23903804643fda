"""Small trained checkpoints that ship, each a folder with its weights, tokenizer, config and card.

They are read as files beside the package `engine`: see `engine.service.saved`.
"""
