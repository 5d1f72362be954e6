//! `rma-figures paper`: runs figures of the papers, judges them, and writes them with one page.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use clap::Args;
use rma_bench::{interrupt::Interrupt, line};

use super::{
    claims::Verdict,
    differences::{Differences, DifferencesError},
    figure::{Figure, FigureFailed},
    judged::{Judged, faults, shown},
    list::figures,
    page::Page,
    points::Points,
    run::{Run, Scale},
    store::{Folder, StoreError},
};

/// The arguments of `paper`.
#[derive(Args, Clone, Debug)]
pub struct PaperArgs {
    /// Figures, by their ids or by what these begin with, as 1rma-16a, 1rma-16 or star. Default:
    /// all.
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// List them, with the kind of run, its seconds, and what the paper says.
    #[arg(long)]
    pub list: bool,
    /// Compute some of their points, by the same seeds.
    #[arg(long)]
    pub quick: bool,
    /// Exit with 3 if a claim neither holds nor is explained, or if a reason is not needed.
    #[arg(long)]
    pub check: bool,
    /// Write ID.json, ID.csv, ID.svg and index.html to this folder, which is made if it is not
    /// there. The page has all figures of the folder.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write FIGURES.md to this folder of documentation, and ID.json and ID.svg to `figures` in it.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "quick", "seeds"])]
    pub docs: Option<PathBuf>,
    /// Run nothing: write the folder's pages and pictures anew from its points.
    #[arg(long, conflicts_with = "check")]
    pub redraw: bool,
    /// Seeds of each simulated point, and rounds of each measured one. Default: the figure's own
    /// number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: Option<u64>,
    /// Threads of simulations and models, which give the same bytes with any number. Default: one
    /// for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// An error of `paper`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PaperError {
    /// There is no such figure.
    #[error("no figure is called {id:?}; the figures are {known}")]
    Unknown {
        /// The name that was asked for.
        id: String,
        /// All names.
        known: String,
    },
    /// The reasons for differences are not in order.
    #[error(transparent)]
    Differences(#[from] DifferencesError),
    /// Something cannot be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing can be redrawn.
    #[error("--redraw needs a folder that has points; give one with --out or --docs")]
    NoFolder,
    /// Figures failed.
    #[error("{0} failed, for the reasons above; those that are done are kept, so run it again")]
    Failed(String),
    /// Somebody asked the program to end.
    #[error("interrupted; figures that were done are kept")]
    Interrupted,
    /// A check of figures of which none could run.
    #[error("none of these figures could run here, so no claim was checked; see above")]
    NothingJudged,
    /// Claims do not hold, or reasons are not needed.
    #[error(
        "{claims} claims neither hold nor are explained, {reasons} reasons are not needed; see above"
    )]
    Unexplained {
        /// The number of such claims.
        claims: usize,
        /// The number of such reasons.
        reasons: usize,
    },
}

impl PaperError {
    /// The exit status for it.
    #[must_use]
    pub const fn status(&self) -> u8 {
        if matches!(self, Self::Unexplained { .. }) { 3 } else { 1 }
    }
}

/// The folder that figures are written to, and in which form.
struct Place {
    folder: Folder,
    /// The folder of documentation that it is in.
    docs: Option<Folder>,
}

/// Runs, judges, prints and writes.
///
/// # Errors
/// [`PaperError`].
pub fn paper(args: &PaperArgs, interrupt: &Interrupt) -> Result<(), PaperError> {
    let all: Vec<&dyn Figure> = figures().collect();
    let chosen = chosen(&all, &args.ids)?;
    if args.list {
        list(&chosen);
        return Ok(());
    }
    let differences = Differences::built_in()?;
    let place = Place::of(args)?;
    if args.redraw && place.is_none() {
        return Err(PaperError::NoFolder);
    }
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let run = Run {
        scale: if args.quick { Scale::Quick } else { Scale::Full },
        seeds: args.seeds,
        threads: args.threads.map_or_else(cores, usize::from),
        interrupt,
    };
    let runs = Runs { run, all: &all, differences: &differences, place };
    // Before all else, so that a folder of no use is told before anything has run.
    runs.page(&[])?;
    if args.redraw {
        return runs.redraw();
    }
    let done = runs.each(&chosen)?;
    runs.end(&done, args.check)
}

/// The figures with these ids, or whose ids begin so; all, if none is named.
fn chosen<'a>(all: &[&'a dyn Figure], ids: &[String]) -> Result<Vec<&'a dyn Figure>, PaperError> {
    let is_meant = |figure: &&dyn Figure, id: &str| {
        let own = figure.about().id;
        let is_exact = all.iter().any(|it| it.about().id == id);
        if is_exact { own == id } else { own.starts_with(id) }
    };
    for id in ids {
        if id.is_empty() || !all.iter().any(|it| is_meant(it, id)) {
            let known: Vec<&str> = all.iter().map(|it| it.about().id).collect();
            return Err(PaperError::Unknown { id: id.clone(), known: known.join(", ") });
        }
    }
    let is_chosen = |it: &&&dyn Figure| ids.is_empty() || ids.iter().any(|id| is_meant(it, id));
    Ok(all.iter().filter(is_chosen).copied().collect())
}

fn list(figures: &[&dyn Figure]) {
    for figure in figures {
        let about = figure.about();
        line!("{:<18} {:<10} {:>4} s  {}", about.id, about.kind, about.seconds, about.says);
    }
}

impl Place {
    fn of(args: &PaperArgs) -> Result<Option<Self>, StoreError> {
        Ok(match (&args.out, &args.docs) {
            (Some(out), _) => Some(Self { folder: Folder::at(out)?, docs: None }),
            (None, Some(docs)) => {
                let folder = Folder::at(&docs.join("figures"))?;
                Some(Self { folder, docs: Some(Folder::at(docs)?) })
            }
            (None, None) => None,
        })
    }

    /// Writes the files of a figure, its points last: they say that it is done.
    fn write(&self, figure: &Judged<'_>) -> Result<(), StoreError> {
        let Some(points) = &figure.points else { return Ok(()) };
        let named = |end: &str| format!("{}.{end}", figure.about.id);
        match figure.picture().and_then(|it| it.file()) {
            Some(svg) => self.folder.write(&named("svg"), &svg)?,
            None => self.folder.remove(&named("svg")),
        }
        if self.docs.is_none() {
            self.folder.write(&named("csv"), &points.csv())?;
        }
        self.folder.write(&named("json"), &points.json())
    }
}

/// Figures that are to run, and where they go.
struct Runs<'a> {
    run: Run<'a>,
    all: &'a [&'a dyn Figure],
    differences: &'a Differences,
    place: Option<Place>,
}

impl<'a> Runs<'a> {
    /// Runs figures one after the other. Each is printed and written as soon as it is done.
    fn each(&self, chosen: &[&'a dyn Figure]) -> Result<Vec<Judged<'a>>, PaperError> {
        let mut done = Vec::new();
        for figure in chosen {
            let about = figure.about();
            line!("{}: {} ({}, about {} s)", about.id, about.title, about.kind, about.seconds);
            let judged = match self.points(*figure) {
                Ok(points) => Judged::new(*figure, Some(points), None, self.differences),
                Err(FigureFailed::Interrupted) => return Err(PaperError::Interrupted),
                Err(error) => {
                    let what = if error.is_forbidden() { "did not run" } else { "failed" };
                    let note = Some(format!("{what}: {error}"));
                    Judged::new(*figure, None, note, self.differences)
                }
            };
            self.print(&judged);
            if let Some(place) = &self.place {
                place.write(&judged)?;
            }
            done.push(judged);
            self.page(&done)?;
        }
        Ok(done)
    }

    fn points(&self, figure: &dyn Figure) -> Result<Points, FigureFailed> {
        if self.run.interrupt.is_set() {
            return Err(FigureFailed::Interrupted);
        }
        let mut points = figure.points(&self.run)?;
        points.is_quick = self.run.scale == Scale::Quick;
        points.seeds = self.run.seeds;
        let docs = self.place.as_ref().and_then(|it| it.docs.as_ref());
        if let (Some(measured_on), Some(docs)) = (&mut points.measured_on, docs) {
            measured_on.commit = commit(&docs.path);
        }
        points.check()?;
        Ok(points)
    }

    fn print(&self, figure: &Judged<'_>) {
        for claim in &figure.claims {
            let (words, value) =
                (figure.holding(claim, self.differences).words(), shown(claim.value));
            line!(
                "  {}: {}; paper {}, here {value} ({}): {words}",
                claim.id,
                claim.says,
                claim.paper,
                claim.demand
            );
        }
        figure.note.iter().for_each(|it| line!("  {it}"));
        line!("  {}\n", figure.verdict.words());
    }

    /// Writes the page of all figures that the folder has, with what these ones of this run say.
    fn page(&self, done: &[Judged<'_>]) -> Result<(), PaperError> {
        let Some(Place { folder, docs }) = &self.place else { return Ok(()) };
        let judged = |figure: &&'a dyn Figure| {
            let about = figure.about();
            let failed = done.iter().find(|it| it.about.id == about.id && it.points.is_none());
            let failed = failed.and_then(|it| it.note.clone());
            let (points, note) = match (folder.points(&about), failed) {
                (Ok(Some(points)), Some(failed)) => {
                    (Some(points), Some(format!("{failed}; these points are of an earlier run")))
                }
                (Ok(points), failed) => (points, failed),
                (Err(error), _) => (None, Some(error.to_string())),
            };
            let missing = || Some("not here yet".to_owned());
            let note = note.or_else(|| points.is_none().then(missing).flatten());
            Judged::new(*figure, points, note, self.differences)
        };
        let figures = self.all.iter().map(judged).collect();
        let page = Page { figures, differences: self.differences };
        match docs {
            None => folder.write("index.html", &page.html())?,
            Some(docs) => docs.write("FIGURES.md", &page.markdown())?,
        }
        Ok(())
    }

    fn redraw(&self) -> Result<(), PaperError> {
        let Some(place) = &self.place else { return Ok(()) };
        for figure in self.all {
            let points = place.folder.points(&figure.about())?;
            place.write(&Judged::new(*figure, points, None, self.differences))?;
        }
        Ok(())
    }

    /// Prints all verdicts, and says whether all is well.
    fn end(&self, done: &[Judged<'_>], is_checked: bool) -> Result<(), PaperError> {
        for figure in done {
            line!("{:<18} {}", figure.about.id, figure.verdict.words());
        }
        let reasons = faults(self.differences, done);
        reasons.iter().for_each(|it| line!("{it}"));
        let path = self.place.as_ref().map(|it| match &it.docs {
            Some(docs) => docs.path.join("FIGURES.md"),
            None => it.folder.path.join("index.html"),
        });
        path.iter().for_each(|it| line!("written to {}", it.display()));
        let is_failed = |it: &&Judged<'_>| {
            it.note.as_ref().is_some_and(|note| it.points.is_none() && note.starts_with("failed"))
        };
        let failed: Vec<&str> = done.iter().filter(is_failed).map(|it| it.about.id).collect();
        if !failed.is_empty() {
            return Err(PaperError::Failed(failed.join(", ")));
        }
        let judged = || done.iter().filter(|it| it.verdict != Verdict::None);
        if is_checked && judged().next().is_none() {
            return Err(PaperError::NothingJudged);
        }
        let claims = judged().map(|it| it.unexplained(self.differences)).sum();
        let reasons = reasons.len();
        if is_checked && claims + reasons > 0 {
            return Err(PaperError::Unexplained { claims, reasons });
        }
        Ok(())
    }
}

/// The day and name of the commit that a folder is of.
fn commit(folder: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["log", "-1", "--format=commit %h of %cs"]);
    let told = git.output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?.trim().to_owned();
    (!told.is_empty()).then_some(told)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rma_bench::{
        drawing::{Axis, Curve, Form, Panel, Picture, Point, Scale as AxisScale},
        error::PairError,
    };
    use rma_lab::{LabError, Scratch};

    use super::*;
    use crate::paper::{
        claims::{Claim, Difference},
        figure::{About, Kind},
        points::Value,
    };

    /// A figure of four squares.
    struct Squares {
        id: &'static str,
        fails: Option<fn() -> FigureFailed>,
    }

    impl Figure for Squares {
        fn about(&self) -> About {
            let (title, says) = ("Squares <&>", "they grow | *fast*");
            About { id: self.id, title, says, kind: Kind::Simulation, seconds: 1 }
        }

        fn points(&self, run: &Run<'_>) -> Result<Points, FigureFailed> {
            if let Some(fails) = self.fails {
                return Err(fails());
            }
            let at = run.pick(&[1_u32, 2], &[1, 2, 3, 4]);
            let values = run.each(at, |&it| Value::new(f64::from(it), f64::from(it * it)))?;
            let mut points = Points::new(&self.about(), "no <network>");
            points.push("squares", values);
            Ok(points)
        }

        fn claims(&self, points: &Points) -> Vec<Claim> {
            let claim = |end: &str, bound: f64| {
                let id = format!("{}-{end}", self.id);
                let value = points.at("squares", 2.0).unwrap_or(f64::NAN);
                Claim::at_most(&id, "it is <small>", "square of 2", value, bound)
            };
            vec![claim("small", 4.0), claim("smaller", 3.0)]
        }

        fn picture(&self, points: &Points) -> Option<Picture> {
            let points = points.of("squares").iter().map(|it| Point::new(it.x, it.y)).collect();
            let name = "squares <&>".to_owned();
            let curves = vec![Curve { name, colour: 0, dash: 0, form: Form::Marked, points }];
            let axis = |name| Axis { name, scale: AxisScale::Auto };
            let (x, y) = (axis("number"), axis("square"));
            let panel = Panel { title: String::new(), x, y, curves, marks: Vec::new() };
            let (title, conditions) = ("Squares <&>".to_owned(), String::new());
            Some(Picture { title, conditions, panels: vec![panel] })
        }
    }

    const fn squares(id: &'static str) -> Squares {
        Squares { id, fails: None }
    }

    const GOOD: Squares = squares("1rma-1");
    const ALSO_GOOD: Squares = squares("1rma-1a");
    const OTHER: Squares = squares("star-1");
    const FORBIDDEN: Squares = Squares {
        id: "channels-4",
        fails: Some(|| FigureFailed::Pair(PairError::Lab(LabError::NotRoot { euid: 1000 }))),
    };
    const BROKEN: Squares =
        Squares { id: "channels-5", fails: Some(|| FigureFailed::Settings("no".to_owned())) };
    const ENDED: Squares = Squares { id: "star-2", fails: Some(|| FigureFailed::Interrupted) };

    struct Bench<'a> {
        scratch: Scratch,
        all: Vec<&'a dyn Figure>,
        differences: Differences,
    }

    impl<'a> Bench<'a> {
        fn new(all: &[&'a dyn Figure]) -> Self {
            let differences = Differences::default();
            Self { scratch: Scratch::new(), all: all.to_vec(), differences }
        }

        fn run(&self, threads: usize, docs: bool) -> Result<(), PaperError> {
            let interrupt = Interrupt::default();
            let run = Run { scale: Scale::Full, seeds: None, threads, interrupt: &interrupt };
            let folder = Folder::at(self.scratch.path())?;
            let place = Some(Place { docs: docs.then(|| folder.clone()), folder });
            let runs = Runs { run, all: &self.all, differences: &self.differences, place };
            let done = runs.each(&self.all)?;
            runs.end(&done, true)
        }

        fn file(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.scratch.path().join(name)).ok()
        }
    }

    #[test]
    fn figures_are_chosen_by_their_ids_and_by_what_these_begin_with() {
        let all: [&dyn Figure; 3] = [&GOOD, &ALSO_GOOD, &OTHER];
        let ids = |asked: &[&str]| -> Result<Vec<&str>, String> {
            let asked: Vec<String> = asked.iter().map(|it| (*it).to_owned()).collect();
            let chosen = chosen(&all, &asked).map_err(|it| it.to_string())?;
            Ok(chosen.iter().map(|it| it.about().id).collect())
        };
        assert_eq!(ids(&[]).unwrap().len(), 3);
        assert_eq!(ids(&["1rma-1"]).unwrap(), ["1rma-1"]);
        assert_eq!(ids(&["star", "1rma", "1rma-1"]).unwrap(), ["1rma-1", "1rma-1a", "star-1"]);
        for unknown in ["1rma-2", ""] {
            let error = ids(&[unknown]).unwrap_err();
            assert!(error.ends_with("the figures are 1rma-1, 1rma-1a, star-1"), "{error}");
        }
    }

    #[test]
    fn the_same_bytes_come_of_one_thread_and_of_sixteen() {
        let files = |threads| {
            let bench = Bench::new(&[&GOOD]);
            assert!(bench.run(threads, false).is_err(), "it is not smaller, and not explained");
            let names = ["1rma-1.json", "1rma-1.csv", "1rma-1.svg", "index.html"];
            names.map(|it| bench.file(it).unwrap())
        };
        let first = files(1);
        assert_eq!(first, files(16));
        let [json, csv, svg, page] = first;
        assert!(json.contains("[2.0,4.0]") && csv.contains("squares,2,4,,,"));
        assert!(svg.contains("simulation; no &lt;network&gt;"));
        for text in [&page, &svg] {
            for foreign in ["<&>", "<small", "<script", "src=", "url(", "@import"] {
                assert!(!text.contains(foreign), "{foreign} in {text}");
            }
        }
        assert!(
            !page.contains("://")
                && page.contains(
                    svg[svg.find("<path").unwrap()..].split_once("<path class='grid'").unwrap().1
                )
        );
    }

    #[test]
    fn figures_that_are_done_stay_and_the_page_names_those_that_are_missing() {
        let bench = Bench::new(&[&GOOD, &FORBIDDEN, &BROKEN, &ENDED, &OTHER]);
        assert!(matches!(bench.run(1, false), Err(PaperError::Interrupted)));
        let page = bench.file("index.html").unwrap();
        assert!(bench.file("1rma-1.json").is_some() && bench.file("channels-4.json").is_none());
        assert!(page.contains("Not here: channels-4, channels-5, star-2, star-1."), "{page}");
        for words in
            ["did not run: ", "failed: no", "not here yet", "5 figures: 1 differs, 4 no verdict"]
        {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn a_figure_that_may_not_run_is_no_failure_and_one_that_fails_is() {
        let mut bench = Bench::new(&[&FORBIDDEN]);
        assert!(matches!(bench.run(1, false), Err(PaperError::NothingJudged)), "it is a check");
        bench.all.push(&OTHER);
        let (claim, reason) = ("star-1-smaller".to_owned(), "why".to_owned());
        bench.differences.all.push(Difference { claim, reason });
        bench.run(1, false).unwrap();
        bench.all.push(&BROKEN);
        assert!(matches!(bench.run(1, false), Err(PaperError::Failed(it)) if it == "channels-5"));
    }

    #[test]
    fn a_claim_that_does_not_hold_wants_a_reason_and_one_that_holds_wants_none() {
        let mut bench = Bench::new(&[&OTHER]);
        let status = |bench: &Bench<'_>| match bench.run(1, true) {
            Err(error @ PaperError::Unexplained { claims, reasons }) => {
                assert_eq!(error.status(), 3);
                (claims, reasons)
            }
            other => other.map(|()| (0, 0)).unwrap(),
        };
        assert_eq!(status(&bench), (1, 0));
        let reason = |claim: &str| Difference { claim: claim.to_owned(), reason: "why".to_owned() };
        bench.differences.all.push(reason("star-1-smaller"));
        assert_eq!(status(&bench), (0, 0));
        let text = bench.file("FIGURES.md").unwrap();
        assert!(text.contains("differs, explained") && text.contains("does not hold: why"));
        assert!(text.contains("they grow \\| \\*fast\\*") && text.contains("(figures/star-1.svg)"));
        bench.differences.all.extend(["star-1-small", "star-1-no"].map(reason));
        assert_eq!(status(&bench), (0, 2));
    }
}
