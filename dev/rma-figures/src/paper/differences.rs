//! The reviewed reasons why claims do not hold here, of `docs/figures/differences.toml`.

use serde::Deserialize;

use super::{
    claims::{Claim, Difference},
    list::figures,
};

/// The file, as this program was built with it.
const FILE: &str = include_str!("../../../../docs/figures/differences.toml");

/// All of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Differences {
    #[serde(default, rename = "difference")]
    pub(crate) all: Vec<Difference>,
}

/// An error of the file.
#[derive(Debug, thiserror::Error)]
pub enum DifferencesError {
    /// It is no list of claims and reasons.
    #[error("docs/figures/differences.toml: {0}")]
    Form(#[from] toml::de::Error),
    /// A claim that no figure can have.
    #[error(
        "docs/figures/differences.toml: no figure has a claim {0}: ids of claims begin with those of figures; delete it"
    )]
    NoFigure(String),
    /// A claim with two reasons.
    #[error("docs/figures/differences.toml: {0} stands there twice; delete one of the two")]
    Twice(String),
    /// Words are missing.
    #[error("docs/figures/differences.toml: {0} has no reason; give one")]
    NoReason(String),
}

impl Differences {
    /// Those that this program was built with.
    ///
    /// # Errors
    /// If they are not of the right form.
    pub(crate) fn built_in() -> Result<Self, DifferencesError> {
        let ids = figures().map(|it| it.about().id);
        Self::read(FILE, &ids.collect::<Vec<_>>())
    }

    fn read(text: &str, figures: &[&str]) -> Result<Self, DifferencesError> {
        let read: Self = toml::from_str(text)?;
        for (index, Difference { claim, reason }) in read.all.iter().enumerate() {
            if !figures.iter().any(|id| is_of(claim, id)) {
                return Err(DifferencesError::NoFigure(claim.clone()));
            }
            if read.all[..index].iter().any(|it| it.claim == *claim) {
                return Err(DifferencesError::Twice(claim.clone()));
            }
            if reason.trim().is_empty() {
                return Err(DifferencesError::NoReason(claim.clone()));
            }
        }
        Ok(read)
    }

    /// The reason for a claim that does not hold.
    pub(crate) fn reason(&self, claim: &Claim) -> Option<&str> {
        let found = self.all.iter().find(|it| it.claim == claim.id && !claim.holds);
        found.map(|it| it.reason.trim())
    }
}

/// Whether a claim is one of a figure: its id is the figure's and more.
pub(super) fn is_of(claim: &str, figure: &str) -> bool {
    claim.strip_prefix(figure).is_some_and(|it| it.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_without_words_or_claim_or_given_twice_are_refused() {
        let read = |text: &str| Differences::read(text, &["1rma-0"]).map_err(|it| it.to_string());
        let one = "[[difference]]\nclaim = \"1rma-0-a\"\nreason = \"because\"\n";
        assert_eq!(read(one).unwrap().all.len(), 1);
        assert!(read("").unwrap().all.is_empty());
        for (text, fault) in [
            (format!("{one}{one}"), "twice"),
            (one.replace("1rma-0", "1rma-9"), "no figure"),
            (one.replace("because", " "), "no reason"),
            (one.replace("reason", "why"), "unknown field"),
            ("[difference".to_owned(), "TOML parse error"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(fault), "{error}");
        }
    }

    #[test]
    fn the_reasons_of_this_program_are_of_the_right_form() {
        Differences::built_in().unwrap();
    }
}
