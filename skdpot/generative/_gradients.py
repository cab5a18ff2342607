"""How a generator is trained by steps that release gradients."""

import copy
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from skdpot.generative._engine import load_engine
from skdpot.generative._plan import plan_published, plan_training
from skdpot.generative._records import check_exactness, read_bounds, read_classes, read_records
from skdpot.generative._saving import network_name
from skdpot.generative._sketch.images import whole_shape
from skdpot.generative._vector import default_clip_norm, default_reg, make_vector
from skdpot.privacy.guarantee import NoGuaranteeWarning
from skdpot.privacy.mechanisms import GaussianMechanism
from skdpot.privacy.poisson import poisson_sample

# How often a progress bar is told the loss and what has been spent so far.
_UPDATES = 20


class GradientTraining:
    """The part of a generator that trains a network on private records, step by step."""

    if TYPE_CHECKING:
        # The parameters are those of the estimator that this is a part of.
        def __getattr__(self, name: str) -> Any: ...

    def _fit_by_gradients(self, X, y):
        """Train the network. All that may be refused is, before the ledger is charged."""
        if self.schema is not None or self.target is not None:
            raise ValueError("schema and target are for method='sketch'.")
        engine = load_engine()
        continued = self.warm_start and hasattr(self, "_network")
        points, codes = engine.within_memory(
            lambda: read_records(self, X, y, self.classes, self.data_bounds, reset=not continued)
        )
        check_exactness(self.gradient, self.l1_weight, self.sampling_rate, len(points))
        source = self._make_source(continued)
        plan = self._plan()
        vector = self._make_vector(points.shape[1])
        settings = self._make_settings(engine, plan, vector, points.shape[1])
        trainer = engine.within_memory(self._make_trainer, engine, settings, source, continued)
        records = engine.within_memory(trainer.hold, points, codes)
        engine.within_memory(trainer.rehearse)
        mechanism = None
        if plan.noise_multiplier:
            mechanism = GaussianMechanism.from_noise_multiplier(
                plan.noise_multiplier, vector.sensitivity, n_coordinates=trainer.vector_size
            )
        self._charge(plan, source, f"{plan.n_steps} steps")
        if not continued:
            self._forget()
        trainer.make_private(mechanism, source, secure=self.secure_noise)
        losses = self._train(engine, trainer, plan, records, source)
        self._keep(trainer, settings, plan, losses, source)
        return self

    def _plan(self):
        """Return how many steps there will be, with how much noise, or raise."""
        options: dict[str, Any] = {
            "epsilon": None if self.epsilon is None else float(self.epsilon),
            "delta": float(self.delta),
            "sampling_rate": float(self.sampling_rate),
            "n_iter": int(self.n_iter),
        }
        if self.accounting == "sound":
            return plan_training(
                **options,
                noise_multiplier=self.noise_multiplier,
                neighbouring=self.neighbouring,
                centred=self.gradient == "per_record",
            )
        of_paper = (self.gradient, self.clipping, self.neighbouring)
        if self.epsilon is None or of_paper != ("per_image", "per_image", "add_remove"):
            raise ValueError(
                "accounting='paper' is that of gradient='per_image', clipping='per_image' and "
                "neighbouring='add_remove', with an epsilon."
            )
        plan = plan_published(
            **options, noise_scale=self.noise_multiplier, batch_size=int(self.batch_size)
        )
        warnings.warn(
            "accounting='paper' counts every generated point as a query of its own. What it calls "
            f"epsilon={self.epsilon:g} guarantees nothing: the epsilon of this training is "
            f"{plan.epsilon_after(plan.n_steps):.4g}.",
            NoGuaranteeWarning,
            stacklevel=6,
        )
        return plan

    def _make_vector(self, n_features):
        """Return how a step's vector is made."""
        clip_norm = self.clip_norm
        if clip_norm is None:
            clip_norm = default_clip_norm(
                self.gradient, self.clipping, n_features, self.l1_weight, self.batch_size
            )
        return make_vector(
            self.gradient, self.clipping, float(clip_norm), int(self.batch_size), self.neighbouring
        )

    def _make_settings(self, engine, plan, vector, n_features):
        """Return the public parameters of a step."""
        classes = read_classes(self.classes)
        return engine.Settings(
            n_features=n_features,
            n_classes=0 if classes is None else len(classes[0]),
            latent_dim=self._latent_dim(engine, n_features),
            batch_size=int(self.batch_size),
            debias=float(self.debias),
            reg=float(self.reg or default_reg(self.gradient, n_features)),
            l1_weight=float(self.l1_weight),
            class_scale=float(self.class_scale),
            clip_norm=vector.clip_norm if plan.noise_multiplier else math.inf,
            per_point=vector.per_point,
            loss_weight=vector.loss_weight,
            count_weight=vector.count_weight,
            count_noise=vector.count_noise(plan.noise_multiplier),
        )

    def _make_trainer(self, engine, settings, source, continued):
        """Return a network with what trains it, or raise where there is something wrong."""
        first_weights, latents = source.bits(62, 2).tolist()
        device = engine.find_device(self.device)
        if continued:
            network = self._network_to_continue(settings)
        else:
            network = self._new_network(
                engine, settings.n_features, settings.n_classes, first_weights
            )
        trainer = engine.Trainer(
            network,
            settings,
            self.gradient,
            optimizer=self.optimizer,
            learning_rate=float(self.learning_rate),
            device=device,
            seed=latents,
        )
        if continued and self._training_state.get("of") == self._kind_of_training():
            trainer.restore(self._training_state["state"])
        return trainer

    def _new_network(self, engine, n_features, n_classes, seed):
        """Return a network, or raise where there can be no such one."""
        return engine.make_network(
            "auto" if self.network is None else self.network,
            n_features=n_features,
            n_classes=n_classes,
            latent_dim=self._latent_dim(engine, n_features),
            image_shape=self._whole_shape(n_features),
            seed=seed,
        )

    def _latent_dim(self, engine, n_features):
        return self.latent_dim or engine.default_latent_dim(
            n_features, self._whole_shape(n_features)
        )

    def _whole_shape(self, n_features):
        return None if self.image_shape is None else whole_shape(self.image_shape, n_features)

    def _kind_of_training(self):
        """Return what must be the same for a training to remember an earlier one."""
        return self.optimizer, self.gradient, int(self.batch_size)

    def _network_to_continue(self, settings):
        """Return a copy of the network, so that the fitted one is as it was if this fit fails."""
        names = None if self.classes is None else read_classes(self.classes)[0].tolist()
        fitted = self.classes_.tolist() if hasattr(self, "classes_") else None
        box = read_bounds(self.data_bounds, settings.n_features)
        shape = ("n_features", "n_classes", "latent_dim")
        promised = self.privacy_guarantee_
        if (
            names != fitted
            or not np.array_equal(box, self._box)
            or any(getattr(settings, name) != getattr(self._settings, name) for name in shape)
            or network_name(self.network) != self._network_name
            # Guarantees under different relations do not add up.
            or (promised and promised.neighbouring != self.neighbouring)
        ):
            raise ValueError(
                "warm_start=True goes on with the network of the last fit, so that classes, "
                "data_bounds, network, latent_dim and neighbouring must be those of that fit. Use "
                "warm_start=False."
            )
        return copy.deepcopy(self._network)

    def _train(self, engine, trainer, plan, records, source):
        """Return the losses of the steps, with noise."""
        losses = []
        every = -(-plan.n_steps // _UPDATES)
        with tqdm(
            total=plan.n_steps, desc=type(self).__name__, unit=" steps", disable=not self.verbose
        ) as bar:
            for made in range(1, plan.n_steps + 1):
                sampled = engine.within_memory(
                    poisson_sample, source, len(records.points), plan.sampling_rate
                )
                losses.append(trainer.step(records, sampled))
                bar.update()
                if self.verbose and (made % every == 0 or made == plan.n_steps):
                    bar.set_postfix(_progress(plan, made, losses[-every:]))
        return trainer.numbers(losses)

    def _keep(self, trainer, settings, plan, losses, source):
        """Set what was fitted: functions of what was released, and of public parameters."""
        if self.classes is not None:
            self.classes_ = read_classes(self.classes)[0]
        self.privacy_guarantee_ = self._guarantee(plan, source)
        self.loss_curve_ = [*getattr(self, "loss_curve_", []), *losses]
        self.n_iter_ = len(self.loss_curve_)
        self.noise_multiplier_ = plan.noise_multiplier
        self._box = read_bounds(self.data_bounds, settings.n_features)
        self._settings = settings
        self._training_state = {"of": self._kind_of_training(), "state": trainer.state()}
        self._network = trainer.network.cpu().eval()
        self._network_name = network_name(self.network)

    def _network_rows(self, n_rows, codes, rng):
        """Return generated rows, from -1 to 1."""
        engine = load_engine()
        return engine.generate(
            self._network,
            self._settings,
            codes,
            n_rows,
            engine.find_device(self.device),
            int(rng.randint(2**31)),
        )


def _progress(plan, n_steps, losses):
    """Return what a progress bar shows: public, or released."""
    shown = {"loss": f"{sum(map(float, losses)) / len(losses):.3g}"}
    if plan.guaranteed:
        shown["epsilon"] = f"{plan.epsilon_after(n_steps):.3g}"
    return shown
