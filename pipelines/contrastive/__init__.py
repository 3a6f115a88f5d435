"""Contrastive training: SimCSE, and the image and text side with weighted point sets beside CLIP."""
