//! The answer of one check.

use serde::{Deserialize, Serialize};

use crate::setting::Setting;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum State {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing need be done.
    Note,
    /// To be mended.
    Mend,
    /// Not seen, for the reason that the finding gives.
    Unknown,
    /// Without meaning for this machine or interface.
    DoesNotApply,
}

/// The risk of a mend, which decides whether it is applied together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Class {
    /// Safe: no packet is lost.
    Safe,
    /// May drop the link for a moment; applied by name only.
    Link,
    /// A person's decision; never applied.
    Person,
    /// Done by the bench itself while it runs, with the option that the command names.
    Bench,
}

/// The answer of one check, about the machine or one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The check's name, as `--apply` takes it.
    pub id: String,
    /// The interface, if the check is about one.
    pub interface: Option<String>,
    /// The outcome.
    pub state: State,
    /// The value that was found.
    pub found: String,
    /// The value that is wanted, if there is one.
    pub wanted: Option<String>,
    /// The meaning for 1RMA, in a sentence.
    pub why: String,
    /// The exact command that mends it, as a person would type it.
    pub command: Option<String>,
    /// The risk of the mend.
    pub class: Class,
    /// The settings that `--apply` makes; empty if a person has to do it.
    pub settings: Vec<Setting>,
}
