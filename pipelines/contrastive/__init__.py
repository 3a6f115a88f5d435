"""Contrastive training: SimCSE on texts; weighted point sets beside CLIP on images with captions."""
