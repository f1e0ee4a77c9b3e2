"""Fashion-MNIST: 28x28 pictures of clothes in the format and the sizes of MNIST."""

from __future__ import annotations

from maar.data.dataset import Info
from maar.data.idx import read_four
from maar.data.mnist import rebuild
from maar.data.packages import Debian, Installed
from maar.data.published import File, Published
from maar.data.web import Web

_DEBIAN = ("dataset-fashion-mnist", "/usr/share/datasets/fashion-mnist")

FASHION_MNIST = Published(
    info=Info(
        name="fashion_mnist",
        shape=(1, 28, 28),
        classes=(
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        n_train=60_000,
        n_test=10_000,
        mean=(0.2860,),
        std=(0.3530,),
        origin="Xiao, Rasul, Vollgraf",
        licence="MIT",
    ),
    files=(
        File(
            "train-images-idx3-ubyte",
            47_040_016,
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        File(
            "train-labels-idx1-ubyte",
            60_008,
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        File(
            "t10k-images-idx3-ubyte",
            7_840_016,
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        File(
            "t10k-labels-idx1-ubyte",
            10_008,
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    sha256="0b613e0af80f16d2a42908f889f10e5bdd727ab22b71ccbf663156658a44d2ab",
    decode=read_four,
    rebuild=rebuild,
    origins=(
        # What is on the machine already costs no network; its hash is checked like any other.
        Installed(*_DEBIAN),
        Web(
            (
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            )
        ),
        Debian(*_DEBIAN),
    ),
)
