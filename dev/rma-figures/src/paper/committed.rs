//! The figures of the repository are true: pictures and page are what is drawn from the points that
//! are committed, those points are what figures compute, and claims hold of them or are explained.
//!
//! Measured points are of another machine: they are held against their claims and nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use rma_bench::interrupt::Interrupt;

use super::{
    differences::Differences,
    figure::Figure,
    judged::{Judged, faults},
    list::figures,
    page::Page,
    points::{Points, Series},
    run::{Run, Scale},
    store::Folder,
};

const ADVICE: &str =
    "`rma-figures paper --docs docs ID` runs a figure; with --redraw it only draws";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn committed(figure: &dyn Figure) -> Points {
    let folder = Folder { path: docs().join("figures") };
    let (points, id) = (folder.points(&figure.about()).unwrap(), figure.about().id);
    points.unwrap_or_else(|| panic!("docs/figures/{id}.json is not there: {ADVICE}"))
}

fn text(name: &str) -> String {
    fs::read_to_string(docs().join(name)).unwrap_or_else(|it| panic!("docs/{name}: {it}: {ADVICE}"))
}

fn judged(differences: &Differences) -> Vec<Judged<'static>> {
    figures().map(|it| Judged::new(it, Some(committed(it)), None, differences)).collect()
}

#[test]
fn pictures_and_page_are_what_is_drawn_from_the_committed_points() {
    let differences = Differences::built_in().unwrap();
    let mut expected = vec!["differences.toml".to_owned()];
    let figures = judged(&differences);
    for figure in &figures {
        let (id, points) = (figure.about.id, figure.points.as_ref().unwrap());
        assert!(!points.is_quick && points.seeds.is_none(), "{id} is not of full scale: {ADVICE}");
        assert!(text(&format!("figures/{id}.json")) == points.json(), "{id}.json: {ADVICE}");
        expected.push(format!("{id}.json"));
        if let Some(svg) = figure.picture().and_then(|it| it.file()) {
            assert!(text(&format!("figures/{id}.svg")) == svg, "{id}.svg is another: {ADVICE}");
            expected.push(format!("{id}.svg"));
        }
    }
    let page = Page { figures, differences: &differences };
    assert!(text("FIGURES.md") == page.markdown(), "docs/FIGURES.md is another: {ADVICE}");
    let found = fs::read_dir(docs().join("figures")).unwrap();
    let mut found: Vec<String> =
        found.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "files that no figure has: delete them");
}

#[test]
fn claims_of_the_committed_points_hold_or_are_explained_and_each_reason_is_needed() {
    let differences = Differences::built_in().unwrap();
    let figures = judged(&differences);
    // What was measured on one machine may differ without a known reason: the page says so.
    let computed = figures.iter().filter(|it| !it.about.kind.is_measured());
    let open = computed.filter(|it| it.unexplained(&differences) > 0);
    assert_eq!(open.map(|it| it.about.id).collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(faults(&differences, &figures), Vec::<String>::new());
}

#[test]
fn quick_points_of_simulations_and_models_are_some_of_the_committed_ones_to_the_bit() {
    let interrupt = Interrupt::default();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let run = Run { scale: Scale::Quick, seeds: None, threads, interrupt: &interrupt };
    for figure in figures().filter(|it| !it.about().kind.is_measured()) {
        let quick = figure.points(&run).unwrap();
        let wrong = not_in(&quick, &committed(figure));
        assert!(wrong.is_empty(), "{}: {}; {ADVICE}", quick.id, wrong.join("; "));
    }
}

/// All that `quick` has and `full` has not.
fn not_in(quick: &Points, full: &Points) -> Vec<String> {
    let mut wrong = Vec::new();
    for Series { name, values } in &quick.series {
        let other = values.iter().filter(|it| !full.of(name).contains(it));
        wrong.extend(other.map(|it| format!("{name} has {it:?}")));
    }
    let other = quick.numbers.iter().filter(|it| !full.numbers.contains(it));
    wrong.extend(other.map(|it| format!("{it:?}")));
    for table in &quick.tables {
        let rows = full.tables.iter().find(|it| it.title == table.title).map(|it| &it.rows);
        let other = table.rows.iter().filter(|row| rows.is_none_or(|it| !it.contains(row)));
        wrong.extend(other.map(|it| format!("{}: {}", table.title, it.join(", "))));
    }
    wrong
}

#[test]
fn a_value_that_is_another_in_its_last_bit_is_found() {
    use super::{
        figure::{About, Kind},
        points::Value,
    };
    let about = About { id: "a", title: "", says: "", kind: Kind::Model, seconds: 1 };
    let mut full = Points::new(&about, "");
    full.push("a", vec![Value::new(1.0, 1.0), Value::new(2.0, 2.0)]);
    full.number("b", 1.0, "");
    let mut quick = full.clone();
    quick.series[0].values.pop();
    assert!(not_in(&quick, &full).is_empty());
    assert_eq!(not_in(&full, &quick).len(), 1);
    quick.series[0].values[0].y = 1.0_f64.next_up();
    quick.numbers[0].value = 1.0_f64.next_down();
    assert_eq!(not_in(&quick, &full).len(), 2);
}
