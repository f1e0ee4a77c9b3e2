"""The certified radius of each image: up to which eps is it proved, from which is it broken?

search   the bisection on one image
run      many images, with a store of their own
"""
