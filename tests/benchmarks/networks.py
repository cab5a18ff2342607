"""Convolutional networks that tell images apart, for benchmarks of generators."""

import numpy as np
import torch


class Convolutions:
    """Two layers of 32 and 64 filters with dropout."""

    def __init__(self, image_shape, n_epochs=4):
        self.shape, self.n_epochs = (-1, 1, *image_shape), n_epochs

    def fit(self, X, y):
        torch.manual_seed(0)
        images, labels = torch.as_tensor(X).float().reshape(self.shape), torch.as_tensor(y)
        side = (self.shape[2] // 4) * (self.shape[3] // 4)
        self.network = torch.nn.Sequential(
            *[torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)],
            *[torch.nn.Dropout(), torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU()],
            *[torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Dropout()],
            torch.nn.Linear(64 * side, 10),
        )
        adam = torch.optim.Adam(self.network.parameters())
        for _ in range(self.n_epochs):
            for batch in torch.randperm(len(images)).split(100):
                adam.zero_grad()
                loss = torch.nn.functional.cross_entropy(self.network(images[batch]), labels[batch])
                loss.backward()
                adam.step()
        return self

    @torch.no_grad()
    def predict(self, X):
        images = torch.as_tensor(X).float().reshape(self.shape)
        scores = [self.network.eval()(part) for part in images.split(1000)]
        return torch.cat(scores).argmax(dim=1).numpy()


class HalfDropout(torch.nn.Module):
    """Dropout with probability one half, of bits: drawing numbers takes as long as all the rest."""

    def __init__(self, rng):
        super().__init__()
        self.rng = rng

    def forward(self, x):
        if not self.training:
            return x
        drawn = np.frombuffer(self.rng.bytes(-(-x.numel() // 8)), dtype=np.uint8)
        kept = torch.from_numpy(np.unpackbits(drawn)[: x.numel()]).to(x.dtype)
        return 2 * x * kept.as_strided(x.shape, x.stride())


class FastConvolutions:
    """Two layers of 32 and 64 filters with dropout, at rates of learning that rise and fall."""

    def __init__(self, seed, n_epochs=3, side=28):
        self.seed, self.n_epochs, self.side = seed, n_epochs, side

    def fit(self, X, y):
        torch.manual_seed(self.seed)
        rng = np.random.default_rng(self.seed)
        images = torch.as_tensor(X, dtype=torch.float32).reshape(-1, 1, self.side, self.side)
        labels = torch.as_tensor(y.astype(np.int64))
        layers = [
            *[torch.nn.Conv2d(1, 32, 5, stride=2, padding=2), torch.nn.ReLU(), HalfDropout(rng)],
            *[torch.nn.Conv2d(32, 64, 5, stride=2, padding=2), torch.nn.ReLU()],
            *[torch.nn.Flatten(), HalfDropout(rng), torch.nn.Linear(64 * 49, 10)],
        ]
        self.network = torch.nn.Sequential(*layers).to(memory_format=torch.channels_last)
        adam = torch.optim.Adam(self.network.parameters())
        batches = [b for _ in range(self.n_epochs) for b in torch.randperm(len(y)).split(128)]
        rates = torch.optim.lr_scheduler.OneCycleLR(adam, 3e-3, total_steps=len(batches))
        for batch in batches:
            adam.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.network(images[batch]), labels[batch])
            loss.backward()
            adam.step()
            rates.step()
        return self

    @torch.no_grad()
    def predict(self, X):
        images = torch.as_tensor(X, dtype=torch.float32).reshape(-1, 1, self.side, self.side)
        scores = [self.network.eval()(part) for part in images.split(1000)]
        return torch.cat(scores).argmax(dim=1).numpy()
