"""Pictures: artists are counted and coloured against the sets they draw."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

import cynosure as cy
from cynosure import configurations, plot

HALF = cy.PureAttention(alpha=0.5)


def run(z, layers=30, dynamics=HALF, **options):
    return cy.simulate(dynamics, z, layers=layers, **options)


def drawn(ax, gid):
    """The artists of one gid."""
    return [artist for artist in ax.get_children() if artist.get_gid() == gid]


def tokens(ax, gid):
    """Number of markers in the collections of one gid."""
    return sum(len(artist.get_offsets()) for artist in drawn(ax, gid))


def render(figure):
    """Layout and 3-D projection happen only when a figure is drawn; so do matplotlib's warnings."""
    figure.draw_without_rendering()
    return figure


@pytest.fixture(scope="module")
def four():
    return [run(configurations.figure2(case)) for case in (1, 2, 3, 4)]


def colours_by_definition(trajectory):
    """Token -> RGBA, the slow way: leaders first, then as they come to be followed."""
    ro = cy.roles(trajectory)
    order = list(ro.leaders)
    for k in trajectory.t:
        order += sorted({int(j) for row in ro.followed(int(k)) for j in row} - set(order))
    grey = to_rgba(plot.GREY)
    colour = {i: grey for i in range(trajectory.z.shape[1])}
    return colour | {i: to_rgba(plot.PALETTE[r]) for r, i in enumerate(order)}


def test_the_palette_has_no_colour_twice():
    assert len(set(plot.PALETTE)) == len(plot.PALETTE) == 20
    assert not {plot.GREY, plot.PALE, plot.INK, plot.SHADE} & set(plot.PALETTE)


def test_figure2_has_a_panel_per_case_and_layer(four):
    figure = render(plot.figure2(four))
    assert len(figure.axes) == 20
    titles = [ax.get_title() for ax in figure.axes]
    assert titles[:5] == ["$k = 0$", "$k = 1$", "$k = 2$", "$k = 5$", "$k = 30$"]
    labels = [ax.get_ylabel() for ax in figure.axes[::5]]
    assert all(name in label for name, label in zip(plot.FIGURE2_ROWS, labels, strict=True))
    for row, trajectory in enumerate(four):
        ro = cy.roles(trajectory)
        for column, k in enumerate((0, 1, 2, 5, 30)):
            ax = figure.axes[5 * row + column]
            sizes = ro.followed(k).size
            two = (sizes == 2).sum()
            assert tokens(ax, "leaders") == len(ro.led_at(k))
            assert tokens(ax, "left") == tokens(ax, "right") == two
            assert tokens(ax, "followers") == len(sizes) - len(ro.led_at(k)) - two
            assert len(drawn(ax, "hull")) == (k == 30)


def test_the_emerging_leader_becomes_a_star_when_it_is_born(four):
    axes = plot.layers(four[1]).axes
    assert [tokens(ax, "leaders") for ax in axes] == [2, 3, 3, 3, 3]
    assert cy.roles(four[1]).born[1] == 1


@pytest.mark.parametrize("case", [0, 1, 3])
@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_fill_is_the_followed_token_and_edge_the_colour_of_the_followers(four, case, k):
    trajectory = four[case]
    colour = colours_by_definition(trajectory)
    ro = cy.roles(trajectory)
    followed, leaders = ro.followed(k), set(ro.led_at(k).tolist())
    now = {int(j) for row in followed for j in row}
    ax = plot.layers(trajectory, show=[k]).axes[0]
    z = trajectory.z[k]
    expected = {}
    for i in range(len(z)):
        fill = [colour[j] for j in followed[i]]
        edge = colour[i] if i in now else to_rgba(plot.GREY)
        kinds = (
            ["leaders"] if i in leaders else ["followers"] if len(fill) == 1 else ["left", "right"]
        )
        for kind, face in zip(kinds, fill, strict=True):
            expected[kind, tuple(z[i])] = (face, edge)
    found = {}
    for kind in ("leaders", "followers", "left", "right"):
        for artist in drawn(ax, kind):
            rows = zip(
                artist.get_offsets(), artist.get_facecolors(), artist.get_edgecolors(), strict=True
            )
            for at, face, edge in rows:
                found[kind, tuple(at)] = (tuple(face), tuple(edge))
    assert found == expected


def test_edges_follow_the_layers(four):
    """Row 2: token 3 is followed by token 1 at layer 0 only, and token 1 by nobody before it leads.

    Tokens 0 and 2 lead from the start, token 1 from layer 1 on (golden case G1, alpha = 1/2).
    """
    appearance = plot.Appearance.of(four[1])
    grey = to_rgba(plot.GREY)

    def edged(k):
        return [i for i, edge in enumerate(appearance.at(k).edge) if tuple(edge) != grey]

    assert edged(0) == [0, 2, 3]
    assert edged(1) == edged(2) == edged(30) == [0, 1, 2]
    fill = appearance.at(0).fill
    assert tuple(fill[1]) == tuple(appearance.at(0).edge[3])  # the colour of those who follow it


def test_tokens_that_follow_more_than_two_are_hatched():
    z = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.3]])
    figure = plot.layers(run(z, layers=0))
    ax = figure.axes[0]
    assert tokens(ax, "several") == 2  # (1, 0) and the zero token
    assert drawn(ax, "several")[0].get_hatch()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "follows more" in texts and "follows two" not in texts


def test_equal_tokens_look_alike_and_do_not_split():
    z = np.array([[2.0, 0.0], [2.0, 0.0], [1.0, 0.1]])
    look = plot.Appearance.of(run(z, layers=2)).at(0)
    assert look.kind.tolist() == ["leader", "leader", "one"]
    assert (look.edge[0] == look.edge[1]).all() and (look.fill[2] == look.edge[0]).all()


def test_the_hull_of_the_last_panel_is_that_of_the_leaders(four):
    trajectory = four[2]
    patch = drawn(plot.layers(trajectory).axes[-1], "hull")[0]
    corners = {tuple(v) for v in patch.get_xy()}
    assert corners == {tuple(v) for v in trajectory.z[0][cy.roles(trajectory).leaders]}


def test_panels_share_their_axes_unless_tokens_grow(four):
    limits = {(ax.get_xlim(), ax.get_ylim()) for ax in plot.layers(four[0]).axes}
    assert len(limits) == 1
    grown = run(configurations.figure2(1), 30, cy.dynamics.UnnormalizedAttention(alpha=0.5))
    limits = [ax.get_xlim()[1] for ax in render(plot.layers(grown)).axes]
    assert limits == sorted(limits) and limits[-1] > 1e4 * limits[0]


def test_layers_shown_by_default_are_those_the_run_has():
    z = configurations.figure2(1)
    assert len(plot.layers(run(z, 30)).axes) == 5
    assert [ax.get_title() for ax in plot.layers(run(z, 3)).axes][-1] == "$k = 3$"
    assert [ax.get_title() for ax in plot.layers(run(z, 12, save_every=5)).axes] == [
        "$k = 0$",
        "$k = 5$",
        "$k = 12$",
    ]


def test_padding_is_not_drawn():
    z = np.concatenate([configurations.figure2(1), np.full((3, 2), 50.0)])
    real = np.arange(len(z)) < len(z) - 3
    ax = plot.layers(run(z, 4, mask=real), show=[4]).axes[0]
    assert tokens(ax, "leaders") + tokens(ax, "followers") == real.sum()
    assert ax.get_xlim()[1] < 2


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [1, 12])
def test_any_number_of_tokens_in_any_dimension(n, d):
    trajectory = run(configurations.gaussian(n, d, seed=2), 2)
    figure = render(plot.layers(trajectory))
    assert len(figure.axes) == 3
    assert all(ax.name == ("3d" if d == 3 else "rectilinear") for ax in figure.axes)
    last = figure.axes[-1]
    count = len(cy.roles(trajectory).leaders)
    assert sum(len(a.get_facecolors()) for a in drawn(last, "leaders")) == count
    assert ("PC 1 of $d = 5$" in last.get_xlabel()) == (d == 5)
    render(plot.norms(trajectory).figure)
    z = trajectory.z[0]
    render(plot.follow_graph(cy.Hardmax().followed(z), z).figure)


def test_the_projection_is_one_for_all_layers_and_keeps_the_plane_of_the_tokens():
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.standard_normal((5, 2)))[0]
    flat = rng.standard_normal((3, 20, 2)) * [3.0, 1.0]
    view = plot.View.of(flat @ plane.T)
    x = view.x.reshape(-1, 2)
    distances = np.linalg.norm(x[:, None] - x, axis=-1)
    rows = flat.reshape(-1, 2)
    assert np.allclose(distances, np.linalg.norm(rows[:, None] - rows, axis=-1))
    assert view.x[..., 0].var() > view.x[..., 1].var()


def test_a_run_without_leaders_is_drawn_plain():
    trajectory = run(configurations.gaussian(8), 4)
    plain = cy.Trajectory(trajectory.z, trajectory.t, trajectory.status)
    figure = render(plot.layers(plain))
    assert tokens(figure.axes[-1], "followers") == 8
    assert not drawn(figure.axes[-1], "hull")


def test_a_figure_of_yours_is_drawn_into(four):
    figure = Figure(figsize=(11, 3))
    assert plot.layers(four[0], fig=figure) is figure
    assert len(figure.axes) == 5


# --- sets and polytopes --------------------------------------------------------------------------


@pytest.mark.parametrize("A", [None, [[2.0, 0.8], [0.8, 0.6]], [[0.0, 1.0], [-1.0, 0.0]]])
def test_attention_set_marks_the_set_on_its_supporting_line(A):
    z = configurations.gaussian(20, seed=1)
    attention = cy.Hardmax(A)
    for i in (0, 3, -1):
        ax = plot.attention_set(z, i, A)
        followed = attention.followed(z)[i % 20]
        marked = drawn(ax, "followed")[0].get_offsets()
        assert np.array_equal(marked, z[followed])
        towards = z[i] if A is None else np.array(A) @ z[i]
        line = drawn(ax, "support")[0]
        on = np.array([line.get_xy1(), line.get_xy2()]) @ towards
        assert np.allclose(on, (z @ towards).max())
        corners = drawn(ax, "half-plane")[0].get_xy() @ towards
        assert corners.max() == pytest.approx((z @ towards).max())
        assert corners.min() < (z @ towards).min()
    render(ax.figure)


@pytest.mark.parametrize("A", [None, [[2.0, 0.8], [0.8, 0.6]], [[0.0, 1.0], [-1.0, 0.0]]])
def test_half_space_passes_through_the_token_and_holds_whom_it_follows(A):
    z = configurations.gaussian(20, seed=1)
    attention = cy.Hardmax(A)
    for i in (0, 3, -1):
        ax = plot.half_space(z, i, A, first=1)
        towards = z[i] if A is None else np.array(A) @ z[i]
        followed = attention.followed(z)[i % 20]
        assert np.array_equal(drawn(ax, "followed")[0].get_offsets(), z[followed])
        (line,) = drawn(ax, "boundary")
        on = np.array([line.get_xy1(), line.get_xy2()]) @ towards
        assert np.allclose(on, z[i] @ towards)
        corners = drawn(ax, "half-space")[0].get_xy() @ towards
        assert corners.min() == pytest.approx(z[i] @ towards)
        assert corners.max() > (z @ towards).max()  # shaded on the side of A z_i
        levels = [line.get_xy1() @ towards for line in drawn(ax, "level")]
        leads = i % 20 in followed
        assert np.allclose(levels, (z @ towards).max()) and len(levels) == (0 if leads else 1)
        assert [t.get_text() for t in drawn(ax, "number")] == [str(j) for j in range(1, 21)]
    render(ax.figure)


def test_half_space_of_the_zero_token_has_no_direction():
    ax = plot.half_space(np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.5]]), 1)
    assert tokens(ax, "followed") == 3
    assert not drawn(ax, "half-space") and not drawn(ax, "boundary")
    render(ax.figure)


def test_attention_set_of_the_zero_token_has_no_direction():
    z = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.5]])
    ax = plot.attention_set(z, 1)
    assert tokens(ax, "followed") == 3
    assert not drawn(ax, "support") and not drawn(ax, "direction")
    render(ax.figure)


def test_follow_graph_has_an_arrow_per_pair_and_a_star_per_leader():
    z = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1], [1, 0], [0, 0], [0.5, 0.2], [0.5, 0]], float)
    followed = cy.Hardmax().followed(z)
    ax = plot.follow_graph(followed, z)
    pairs = {(i, int(j)) for i in range(len(z)) for j in followed[i] if i != j}
    assert len(drawn(ax, "arrow")) == len(pairs)
    assert tokens(ax, "leaders") == followed.leads.sum() == 4
    assert tokens(ax, "rings") == sum(i in followed[i] for i in range(len(z))) - 4
    render(ax.figure)


def test_follow_graph_refuses_sets_of_other_tokens():
    z = configurations.gaussian(5)
    with pytest.raises(ValueError, match="own sets"):
        plot.follow_graph(cy.Hardmax().followed(z), z[:4])


def test_shaded_polytopes_in_one_two_and_three_dimensions():
    cube = np.array([[x, y, w] for x in (-1, 1) for y in (-1, 1) for w in (-1, 1)], float)

    def shaded(z):
        ax = plot.new_axes(None, solid=z.shape[1] == 3)
        ax.set(xlim=(-2, 2), ylim=(-2, 2))
        plot.shade(ax, cy.hull(z))
        render(ax.figure)
        return drawn(ax, "hull")

    faces = shaded(cube)[0].get_paths()
    assert [len(face.vertices) for face in faces] == [5] * 6  # six squares, closed
    assert len(shaded(cube[:, :2])[0].get_xy()) == 5
    assert len(shaded(cube[:4])[0].get_paths()) == 1  # a square in space
    assert shaded(cube[:2, 1:])[0].get_gid() == "hull"  # a segment
    assert shaded(cube[:1]) == []


def test_three_coordinates_need_3d_axes():
    ax = Figure().add_subplot()
    with pytest.raises(ValueError, match="projection='3d'"):
        plot.new_axes(ax, solid=True)


# --- curves --------------------------------------------------------------------------------------


def test_norms_are_those_of_A():
    A = np.array([[2.0, 0.8], [0.8, 0.6]])
    trajectory = run(configurations.box(12), 6, cy.PureAttention(cy.Hardmax(A), alpha=0.5))
    ax = plot.norms(trajectory)
    leaders = cy.roles(trajectory).leaders
    lines = drawn(ax, "leaders")
    assert len(lines) == len(leaders)
    z = trajectory.z[:, leaders[0]]
    assert np.allclose(lines[0].get_ydata(), np.sqrt(np.einsum("ki,ij,kj->k", z, A, z)))
    assert len(drawn(ax, "followers")[0].get_segments()) == 12 - len(leaders)
    assert "_A" in ax.get_ylabel()
    skew = run(configurations.box(5), 3, cy.PureAttention(cy.Hardmax([[0, 1], [-1, 0]])))
    assert plot.norms(skew).get_ylabel() == "$|z_i|$"


def test_convergence_is_parallel_to_the_rate_once_settled():
    z = configurations.figure2(3)
    trajectory, limit = run(z, 20), cy.limit(HALF, z)
    ax = plot.convergence(trajectory, limit)
    assert ax.get_yscale() == "log"
    rate = drawn(ax, "rate")[0].get_ydata()
    assert np.allclose(rate[1:] / rate[:-1], 1 / 1.5)
    largest = drawn(ax, "largest")[0].get_ydata()
    assert np.allclose(largest, np.linalg.norm(trajectory.z - limit.points, axis=-1).max(axis=1))
    assert np.allclose(largest / largest[0] * rate[0], rate)  # settled from layer 0 on
    render(ax.figure)
    with pytest.raises(ValueError, match="same configuration"):
        plot.convergence(trajectory, cy.limit(HALF, z[:-1]))


# --- manners -------------------------------------------------------------------------------------


def test_axes_given_are_axes_returned(four):
    trajectory = four[0]
    z = trajectory.z[0]
    for draw in (
        lambda ax: plot.attention_set(z, 3, ax=ax),
        lambda ax: plot.half_space(z, 3, ax=ax),
        lambda ax: plot.follow_graph(cy.Hardmax().followed(z), z, ax=ax),
        lambda ax: plot.norms(trajectory, ax=ax),
        lambda ax: plot.convergence(trajectory, cy.limit(HALF, z), ax=ax),
    ):
        ax = Figure().add_subplot()
        assert draw(ax) is ax
        assert isinstance(draw(None), Axes)


def test_no_pyplot_figure_is_left_open(four):
    def open_figures() -> list[int]:
        pyplot = sys.modules.get("matplotlib.pyplot")
        return [] if pyplot is None else pyplot.get_fignums()

    before = open_figures()  # of other tests: pages of the documentation draw with pyplot
    plot.figure2(four)
    assert open_figures() == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tr: plot.layers(tr, show=[99]), "was not saved"),
        (lambda tr: plot.layers(tr, show=[]), "at least one"),
        (lambda tr: plot.figure2([]), "no trajectory"),
        (lambda tr: plot.figure2([tr], labels=["a", "b"]), "expected 1"),
        (lambda tr: plot.attention_set(tr.z[0], 99), "expected a token 0"),
        (lambda tr: plot.attention_set(np.ones((3, 3)), 0), "d = 3"),
        (lambda tr: plot.half_space(np.ones((3, 3)), 0), "half_space draws .* d = 3"),
        (lambda tr: plot.half_space(tr.z[0], -99), "expected a token 0"),
        (
            lambda tr: plot.convergence(replace(tr, dynamics=None), cy.limit(HALF, tr.z[0])),
            "step alpha",
        ),
        (lambda tr: plot.layers(run(np.stack([tr.z[0]] * 2), 1)), "select"),
    ],
)
def test_bad_input_says_what_to_do(four, call, message):
    with pytest.raises(ValueError, match=message):
        call(four[0])


@pytest.mark.parametrize(
    "dynamics",
    [
        cy.dynamics.RescaledFlow(),
        cy.dynamics.AttentionFlow(cy.Hardmax()),
        cy.PureAttention(cy.Softmax(3.0)),
    ],
    ids=["flow", "hardmax flow", "softmax layers"],
)
def test_runs_where_nobody_leads_are_coloured_by_the_cluster_they_end_in(dynamics):
    clock = {"time": 8.0} if isinstance(dynamics, cy.dynamics.Flow) else {"layers": 30}
    tr = cy.simulate(dynamics, cy.configurations.gaussian(15, 2), **clock)
    fig = plot.layers(tr)
    titles = [ax.get_title() for ax in fig.axes]
    assert len(titles) == 5 and all(("t =" if "time" in clock else "k =") in t for t in titles)
    labels = cy.clusters(tr.z[-1], 0.02 * float(np.ptp(tr.z[0], axis=0).max())).labels
    assert len(set(labels.tolist())) > 1
    way = [line for line in fig.axes[-1].lines if len(line.get_xdata()) > 1]
    assert len(way) == 15  # one line behind every token
    colours = {(int(g), str(line.get_color())) for g, line in zip(labels, way, strict=True)}
    assert len(colours) == len(set(labels.tolist()))
    assert "ends in" in fig.legends[0].get_texts()[0].get_text()


def test_times_that_were_not_saved_are_refused():
    tr = cy.simulate(cy.dynamics.RescaledFlow(), cy.configurations.gaussian(5, 2), time=1.0)
    assert len(plot.layers(tr, show=[0.0, 0.5]).axes) == 2
    with pytest.raises(ValueError, match="was not saved"):
        plot.layers(tr, show=[0.123])


def test_stars_are_drawn_for_layers_with_one_alpha_only():
    made = (
        cy.dynamics.ValueAttention(),
        cy.dynamics.Scheduled(),
        cy.dynamics.JumpChain(cy.Hardmax()),
    )
    for dynamics in made:  # a leader may move on there: its sets are those of the saved states
        tr = cy.simulate(dynamics, cy.configurations.gaussian(5, 2), layers=2)
        assert cy.roles(tr).leads.any()
        assert plot.Appearance.of(tr).roles is None
        assert not drawn(plot.layers(tr).axes[0], "leaders")
    soft = cy.simulate(cy.PureAttention(cy.Softmax(2.0)), tr.z[0], layers=2)
    with pytest.raises(ValueError, match="leaders are defined"):
        cy.roles(soft)


# --- several times of several flows --------------------------------------------------------------


def _flow(d: int) -> cy.Trajectory:
    z0 = cy.configurations.gaussian(6, d, seed=1)
    return cy.simulate(
        cy.dynamics.RescaledFlow(), z0, times=[0.0, 0.5, 2.0], stepper=cy.simulation.RK4(0.25)
    )


@pytest.mark.parametrize("d", [2, 3])
def test_paths_have_a_row_per_run_and_a_panel_per_time(d: int) -> None:
    tr, seen = _flow(d), []
    labels = np.arange(6) % 2
    figure = plot.paths(
        {"one": (tr, labels), "two": (tr, 1 - labels)},
        (0.0, 0.4, 1.9),
        lambda ax, name, z, t: seen.append((name, z, t)),
    )
    render(figure)
    assert len(figure.axes) == 6
    assert [(name, t) for name, _, t in seen] == [
        (name, t) for name in ("one", "two") for t in (0.0, 0.5, 2.0)
    ]
    np.testing.assert_array_equal(seen[1][1], tr.values[1])
    assert [ax.get_title() for ax in figure.axes[:3]] == ["t = 0", "t = 0.5", "t = 2"]


def test_globes_draw_each_state_on_its_disc() -> None:
    start = cy.configurations.sphere(5, 3)
    tr = cy.simulate(cy.SphereFlow(), start, times=[0.0, 1.0], stepper=cy.simulation.RK4(0.25))
    drawn_states = []
    figure = plot.globes({"run": tr}, (0.2, 3.0), lambda ax, name, z: drawn_states.append(z))
    render(figure)
    np.testing.assert_array_equal(np.stack(drawn_states), tr.values)


@pytest.mark.parametrize("z", [np.full((5, 2), 1e308), [[8e307], [-8e307]], 1.7e308 * np.eye(3)])
def test_tokens_too_large_to_draw_are_refused_by_name_and_clustered_all_the_same(z):
    tr = cy.simulate(cy.PureAttention(), z, layers=2)
    with pytest.raises(ValueError, match="too large to draw; divide"):
        cy.report(tr)
    large, small = (cy.clusters(np.ldexp(z, e)).labels.tolist() for e in (0, -40))
    assert large == small


def cut(figure) -> list[str]:
    """The texts of a figure that reach over its edge, as it is saved."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = figure.bbox.width, figure.bbox.height
    named = [t for ax in figure.axes for t in (ax.title, ax._left_title, *ax.texts)]
    named += [label for ax in figure.axes for label in (ax.xaxis.label, ax.yaxis.label)]
    legends = [text for one in figure.legends for text in one.findobj(Text)]
    texts = [*figure.texts, *named, *legends]
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts if t.get_text()]
    return [
        name
        for name, box in boxes
        if box.x0 < -0.5 or box.y0 < -0.5 or box.x1 > width + 0.5 or box.y1 > height + 0.5
    ]


@pytest.mark.parametrize("show", [(0,), (0, 8), (0, 1, 8), (0, 1, 2, 5, 8)])
@pytest.mark.parametrize("what", ["flow", "all lead", "line", "plane", "space"])
def test_titles_and_legend_are_inside_whatever_the_number_of_panels(show, what):
    dynamics, how = cy.PureAttention(), {"layers": 8}
    z0 = cy.configurations.sphere(12, 2, seed=1)
    if what == "flow":
        dynamics, how = cy.SphereFlow(cy.Softmax(4.0)), {"times": np.arange(9.0)}
    elif what != "all lead":  # three kinds of markers, in a legend of up to four lines
        z0 = cy.configurations.gaussian(30, 1 + ["line", "plane", "space"].index(what), seed=1)
    run = cy.simulate(dynamics, z0, **how)
    figure = plot.layers(run, show=show)
    assert not cut(figure)
    narrow = Figure(figsize=(2, 2))
    narrow.text(0.5, 0.5, "a text that is wider than its figure, and is cut")
    assert cut(narrow)


def test_words_are_written_beside_their_tokens():
    z = np.array([[1.0, 0.0], [-1.0, 0.5], [-1.0, -0.5], [0.2, 0.3]])
    words = ("so", "sweet", "and", "cold")
    run = cy.simulate(cy.PureAttention(), z, layers=60)
    figure = plot.layers(replace(run, words=words), show=[0, 60])
    first, last = (
        [t.get_text() for t in ax.texts if t.get_gid() == "word"] for ax in figure.axes[:2]
    )
    assert sorted(first) == sorted(words)
    assert "so +1" in last, "a follower that has come to its leader shares its label"


def test_the_word_of_a_leader_stands_before_those_of_its_followers():
    run = cy.simulate(cy.PureAttention(alpha=3.0), [[1.0, 0.1], [2.0, 0.0], [-1.5, 1.0]], layers=40)
    axes = plot.layers(replace(run, words=("follower", "star", "other")), show=[40]).axes[0]
    assert {t.get_text() for t in axes.texts if t.get_gid() == "word"} == {"star +1", "other"}


def test_a_time_that_was_not_saved_is_asked_for_by_times():
    run = cy.simulate(cy.SphereFlow(), cy.configurations.sphere(4, 2, seed=0), time=1.0)
    with pytest.raises(ValueError, match=r"time 0.333 was not saved.*times=\[..., 0.333\]"):
        plot.layers(run, show=[0.333])


def test_figures_and_axes_show_themselves_in_a_notebook():
    """In a shell of IPython without `%matplotlib inline`; a figure twice is drawn twice."""
    shells = pytest.importorskip("IPython.core.interactiveshell")
    from cynosure.drawing import style

    shell = shells.InteractiveShell.instance()
    try:
        style.show_in_notebooks()
        run = cy.simulate(cy.PureAttention(), cy.configurations.gaussian(5, 2), layers=2)
        for shown in (cy.plot.layers(run), cy.plot.norms(run)):
            data, _ = shell.display_formatter.format(shown)
            assert data["image/png"].startswith(b"\x89PNG")
    finally:
        shells.InteractiveShell.clear_instance()


def test_a_module_that_is_called_names_its_functions():
    with pytest.raises(TypeError, match=r"movie is a module; call one of .*cy\.movie\.movie"):
        cy.movie(None, "tokens.gif")
    with pytest.raises(TypeError, match=r"cy\.plot\.layers"):
        cy.plot(None)
