def apply():
    pass
