"""How heterogeneous is my federation, and how many local steps can it afford?"""
