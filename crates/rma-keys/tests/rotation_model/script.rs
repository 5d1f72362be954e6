//! The budgets and mistakes of a run of the model.

use rma_keys::rotation::Way;

/// A mistake that somebody around the state machines makes, which must break a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The driver takes a TIMEOUT of a Rekey for an OK.
    TimeoutIsOk,
    /// The driver takes a refusal of a Rekey for a NACK.
    RefusalIsNack,
    /// Whoever withdraws a permission rotates as on any other command.
    WithdrawnByRotation,
    /// A client does not tell its ring of ops that were OK.
    OkUntold,
    /// A client drops a key for good as soon as it is refused.
    DropsOnNotice,
    /// A client does not tell its cache that a fetch was lost.
    LossUntold,
}

/// The bounds of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// The way to the owner's responder.
    pub(crate) way: Way,
    /// How many calls each of the two clients makes.
    pub(crate) calls: [u8; 2],
    /// How often the owner rotates on command.
    pub(crate) rotations: u8,
    /// Whether the owner shuts the second client out.
    pub(crate) withdraws: bool,
    /// How often time passes although something else could happen. Where nothing else can and
    /// somebody waits, it always does.
    pub(crate) ticks: u8,
    /// How many notices are forged.
    pub(crate) forged: u8,
    /// How many frames or fetches are lost.
    pub(crate) lost: u8,
    /// The mistake that is made.
    pub(crate) flaw: Option<Flaw>,
}

impl Script {
    pub(crate) fn makes(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// This run, with a mistake.
    pub(crate) const fn with(self, flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..self }
    }
}
