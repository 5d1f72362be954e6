//! The name and subject of a figure, and the kind of run that makes it.

use core::fmt;

/// The name and subject of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The paper's short name and the number there, such as `1rma-10`.
    pub(crate) id: &'static str,
    /// The quantity, in a few words.
    pub(crate) title: &'static str,
    /// The paper's statement, in our words.
    pub(crate) says: &'static str,
    /// The kind of run that makes its points.
    pub(crate) kind: Kind,
    /// About how long it takes at full scale on two idle cores, in seconds.
    pub(crate) seconds: u32,
}

/// The kind of run that makes a figure's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The shipped code over a network in virtual time.
    Simulation,
    /// A cost model.
    Model,
    /// The shipped code in memory: measured.
    Memory,
    /// The shipped code on a real kernel over a veth pair: measured, and needs root.
    Veth,
}

impl Kind {
    /// Whether its points depend on the machine.
    #[cfg(test)]
    pub(crate) const fn is_measured(self) -> bool {
        matches!(self, Self::Memory | Self::Veth)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Simulation => "simulation",
            Self::Model => "model",
            Self::Memory => "memory",
            Self::Veth => "veth",
        })
    }
}
