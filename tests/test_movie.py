"""Movies: frames counted against layers, files whole or absent."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

import cynosure as cy
from cynosure import configurations, movie

SIZE = 96


def run(z, layers=3, dynamics=None):
    return cy.simulate(dynamics or cy.PureAttention(alpha=0.5), z, layers=layers)


@pytest.fixture(scope="module")
def emerging():
    return run(configurations.figure2(2))


@pytest.mark.parametrize("tween", [1, 3])
def test_frames_are_tween_per_layer_and_one(emerging, tween):
    pictures = list(movie.frames(emerging, tween=tween, size=SIZE))
    assert len(pictures) == 3 * tween + 1
    assert all(p.shape == (SIZE, SIZE, 3) and p.dtype == np.uint8 for p in pictures)
    assert (pictures[0] != pictures[-1]).any()
    assert all((a != b).any() for a, b in pairwise(pictures))


def test_frames_on_a_copied_background_equal_frames_drawn_from_scratch(emerging):
    rolling = list(movie.frames(emerging, tween=1, size=SIZE))
    for k in (1, 2):
        fresh = movie._Stage(emerging, movie.View.of(emerging.values), SIZE)
        fresh._enter(k, k)
        fresh.title.set_visible(True)
        look = fresh.appearance.at(k)
        artists = movie.draw_tokens(fresh.ax, emerging.z[k], look, fresh.markers)
        if k == 1:  # token 1 is born here
            artists.append(fresh.ring(emerging.z[k], fresh._born(k)))
        fresh.canvas.draw()
        assert (np.asarray(fresh.canvas.buffer_rgba())[..., :3] == rolling[k]).all()


def test_a_birth_is_ringed_and_becomes_a_star(emerging):
    stage = movie._Stage(emerging, movie.View.of(emerging.values), SIZE)
    assert [stage._born(row).tolist() for row in range(4)] == [[], [1], [], []]
    assert stage.appearance.at(0).kind[1] == "one"
    assert stage.appearance.at(1).kind[1] == "leader"


@pytest.mark.parametrize("d", [1, 3, 5])
@pytest.mark.parametrize("n", [1, 7])
def test_any_number_of_tokens_in_any_dimension(n, d):
    trajectory = run(configurations.gaussian(n, d, seed=1), 1)
    first, last = movie.frames(trajectory, tween=1, size=SIZE)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 10  # something is drawn
    assert (first != last).any()


def test_layers_without_normalisation_carry_their_hull_along():
    trajectory = run(configurations.figure2(3), 2, cy.dynamics.UnnormalizedAttention(alpha=0.5))
    stage = movie._Stage(trajectory, movie.View.of(trajectory.values), SIZE)
    reach = []
    for row in range(3):
        stage._enter(row, row)
        hulls = [a for a in stage.ax.get_children() if a.get_gid() == "hull"]
        assert len(hulls) == 1
        reach.append(hulls[0].get_xy().max())
    assert np.allclose(reach, [1, 1.5, 2.25])


def test_one_saved_layer_is_one_frame():
    assert len(list(movie.frames(run(configurations.box(4), 0), size=SIZE))) == 1


def test_gif_has_every_frame_and_loops(emerging, tmp_path):
    seen = []
    path = movie.movie(
        emerging,
        tmp_path / "run.gif",
        fps=20,
        tween=3,
        size=SIZE,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(done, 10) for done in range(1, 11)]
    with Image.open(path) as gif:
        assert gif.n_frames == 10 and gif.size == (SIZE, SIZE)
        assert gif.info["loop"] == 0 and gif.info["duration"] == 50
        first = np.asarray(gif.convert("RGB")).astype(int)
        gif.seek(9)
        assert gif.info["duration"] == 1500
        last = np.asarray(gif.convert("RGB")).astype(int)
    pictures = list(movie.frames(emerging, tween=3, size=SIZE))
    assert np.abs(first - pictures[0]).mean() < 1 and np.abs(last - pictures[-1]).mean() < 1
    assert np.abs(first - pictures[-1]).mean() > 1  # the comparison can tell frames apart
    assert (first[0, 0] == 255).all()


def test_the_colour_table_keeps_the_palette_and_the_commonest_colours():
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    noise[:32] = [1, 2, 3]
    table = movie._colour_table(noise)
    assert table.shape[0] <= 256 and table[0].tolist() == [1, 2, 3]
    rows = set(map(tuple, table.tolist()))
    assert all(tuple(bytes.fromhex(colour[1:])) in rows for colour in movie.PALETTE)
    assert len(movie._colour_table(np.full((4, 4, 3), 255, np.uint8))) == 1 + len(movie.PALETTE) + 1


def test_an_interrupted_movie_leaves_what_was_there(emerging, tmp_path):
    path = tmp_path / "run.gif"
    path.write_bytes(b"before")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        movie.movie(emerging, path, size=SIZE, progress=interrupt)
    assert path.read_bytes() == b"before"
    assert {p.name for p in tmp_path.iterdir()} == {path.name}


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("run.avi", {}, "ends in .gif, got .avi"),
        ("run", {}, "got no ending"),
        ("run.gif", {"fps": 0}, "frames per second"),
        ("run.gif", {"tween": 0}, "frames per layer"),
        ("run.gif", {"size": 9}, "64..4096"),
    ],
)
def test_bad_input_is_refused_before_anything_is_drawn(emerging, tmp_path, path, options, message):
    with pytest.raises(ValueError, match=message):
        movie.movie(emerging, tmp_path / path, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_batch_is_refused(tmp_path):
    batch = run(np.stack([configurations.box(4)] * 2), 1)
    with pytest.raises(ValueError, match="select"):
        movie.movie(batch, tmp_path / "run.gif")


def test_the_bytes_of_a_gif_are_those_of_its_file(tmp_path):
    tr = cy.simulate(cy.PureAttention(), cy.configurations.gaussian(5, 2), layers=2)
    path = movie.movie(tr, tmp_path / "m.gif", tween=2, size=120)
    assert movie.gif(tr, tween=2, size=120) == path.read_bytes()


def test_tokens_of_a_flow_draw_the_way_they_came():
    flow = cy.SphereFlow(cy.Softmax(4.0))
    run = cy.simulate(flow, cy.configurations.sphere(6, 2, seed=0), times=np.arange(5.0))
    stage = movie._Stage(run, movie.View.of(run.values), 200)
    here = run.values[3]
    trails = stage.trails(here, 3)
    assert len(trails) == 6
    assert np.array_equal(trails[2].get_xydata(), [*run.values[:4, 2], here[2]])


@pytest.mark.parametrize("size", [96, 200, 480, 1000])
def test_labels_are_inside_at_every_size(size):
    run = cy.simulate(cy.SphereFlow(), cy.configurations.sphere(8, 5, seed=0), time=1.0)
    stage = movie._Stage(run, movie.View.of(run.values), size)
    (picture,) = list(stage.play(1))[:1]
    assert picture.shape == (size, size, 3)
    for label in (stage.ax.xaxis.label, stage.ax.yaxis.label, stage.title):
        box = label.get_window_extent()
        assert min(box.x0, box.y0) >= 0 and max(box.x1, box.y1) <= size, label.get_text()
