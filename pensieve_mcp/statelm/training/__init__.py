"""How the bundled adapter is made: tasks over real text, a scripted teacher over the real spellbook, samples
cut at context edits, a LoRA trained on them, and the suite that decides which checkpoint is shipped. Needs
torch only to train.
"""
