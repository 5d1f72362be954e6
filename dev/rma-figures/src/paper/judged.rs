//! A figure with its points, what its claims are here, and the verdict.

use rma_bench::drawing::Picture;

use super::{
    claims::{Claim, Difference, Verdict, Weight},
    differences::{Differences, is_of},
    figure::{About, Figure},
    points::Points,
};

/// A figure that was judged, or could not be.
pub(crate) struct Judged<'a> {
    figure: &'a dyn Figure,
    pub(crate) about: About,
    /// None if it did not run.
    pub(crate) points: Option<Points>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) verdict: Verdict,
    /// The reason why there is no verdict, or why this run has no points and these are older.
    pub(crate) note: Option<String>,
}

/// The end of a claim.
pub(crate) enum Holding<'a> {
    Holds,
    /// It does not hold, for this reason.
    Explained(&'a str),
    /// It does not hold.
    No,
    /// It decides nothing, as a constant was fitted for it.
    Fitted,
    /// It decides nothing, as the figure has no verdict.
    Open,
}

impl<'a> Judged<'a> {
    /// Judges a figure by its points. `note` says why a run has none.
    pub(crate) fn new(
        figure: &'a dyn Figure,
        points: Option<Points>,
        note: Option<String>,
        differences: &Differences,
    ) -> Self {
        let about = figure.about();
        let claims = points.as_ref().map_or_else(Vec::new, |it| figure.claims(it));
        let too_few = points.as_ref().and_then(Points::too_few);
        let verdict = match (&points, &too_few) {
            (Some(_), None) => Verdict::of(&claims, &differences.all),
            _ => Verdict::None,
        };
        let note = note.or(too_few);
        Self { figure, about, points, claims, verdict, note }
    }

    /// Its picture, with the conditions of its points.
    pub(crate) fn picture(&self) -> Option<Picture> {
        let points = self.points.as_ref()?;
        let picture = self.figure.picture(points)?;
        Some(Picture { conditions: points.line(), ..picture })
    }

    /// The command that makes it again.
    pub(crate) fn command(&self) -> String {
        let id = self.about.id;
        self.points.as_ref().map_or_else(|| format!("rma-figures paper {id}"), Points::command)
    }

    /// Whether one of its claims holds, and if not, whether that is explained.
    pub(crate) fn holding<'b>(&self, claim: &Claim, differences: &'b Differences) -> Holding<'b> {
        match differences.reason(claim) {
            _ if self.verdict == Verdict::None && claim.weight != Weight::Fitted => Holding::Open,
            _ if claim.weight == Weight::Fitted => Holding::Fitted,
            _ if claim.holds => Holding::Holds,
            Some(reason) => Holding::Explained(reason),
            None => Holding::No,
        }
    }

    /// Its claims that neither hold nor are explained.
    pub(crate) fn unexplained(&self, differences: &Differences) -> usize {
        let is_no = |it: &&Claim| matches!(self.holding(it, differences), Holding::No);
        self.claims.iter().filter(is_no).count()
    }
}

impl Holding<'_> {
    /// The words of the page.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Holds => "holds".to_owned(),
            Self::Explained(reason) => format!("does not hold: {reason}"),
            Self::No => "does not hold".to_owned(),
            Self::Fitted => "fitted: counts for nothing".to_owned(),
            Self::Open => "not judged".to_owned(),
        }
    }
}

/// A value as it is shown.
pub(crate) fn shown(value: f64) -> String {
    if value.is_finite() { super::points::rounded(value).to_string() } else { "none".to_owned() }
}

/// The faults of the reasons for claims of these list::figures, of those that ran in full.
pub(crate) fn faults(differences: &Differences, figures: &[Judged<'_>]) -> Vec<String> {
    let full =
        || figures.iter().filter(|it| it.points.as_ref().is_some_and(|points| !points.is_quick));
    let fault = |Difference { claim, .. }: &Difference| {
        let of = full()
            .find(|it| is_of(claim, it.about.id) || it.claims.iter().any(|it| it.id == *claim))?;
        match of.claims.iter().find(|it| it.id == *claim) {
            None => {
                Some(format!("{claim}: there is a reason for it, and no such claim; delete it"))
            }
            Some(it) if it.holds => {
                Some(format!("{claim}: there is a reason for it, and it holds; delete the reason"))
            }
            Some(_) => None,
        }
    };
    differences.all.iter().filter_map(fault).collect()
}
