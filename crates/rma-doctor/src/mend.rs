//! Mends, by a journal: what was there is written down before anything is set, so that it can be
//! undone, by another process as well, and after one that was killed at any step.
//!
//! Contract:
//! - Nothing is set before the journal that says what was there is on its disk.
//! - What is undone is undone in reverse, and only where the value is still the one that was set.
//! - Doing or undoing twice is doing or undoing once.

pub mod journal;
pub mod kernel;
mod lifeline;
#[cfg(test)]
mod tests;

use core::fmt;

pub use journal::{Journal, MendError, Place};
pub use kernel::{Interface, Kernel, KernelError, Running};
pub use lifeline::{Lifeline, lifelines};

use crate::setting::Setting;
use journal::Step;

/// A setting that a check wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The check that wants it.
    pub check: String,
    /// The value.
    pub setting: Setting,
}

/// The fate of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The check that wanted it.
    pub check: String,
    /// The value that was to be set.
    pub setting: Setting,
    /// The state that it is in now.
    pub outcome: Outcome,
}

/// The outcome of setting something, as it was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It has the value, and had this one.
    Applied(String),
    /// It had the value already, or the nearest that the driver makes of it.
    Already(String),
    /// The driver made another value of it.
    Rounded(String),
    /// It has the value that it had, and why.
    Refused(String),
    /// It may have been set: it cannot be read back, and why. The journal keeps it.
    Unseen(String),
    /// It has the value again that it had before.
    Undone,
    /// It has this value, which somebody else has given it, and keeps it.
    Changed(String),
}

impl Told {
    /// Whether it is not as it was to be.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(self.outcome, Outcome::Refused(_) | Outcome::Unseen(_))
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, outcome, .. } = self;
        let value = setting.value();
        match outcome {
            Outcome::Applied(was) => write!(f, "{setting}: {was} -> {value}: applied"),
            Outcome::Already(is) => write!(f, "{setting}: {is} already"),
            Outcome::Rounded(is) => write!(f, "{setting}: {value}: rounded to {is}"),
            Outcome::Refused(why) => write!(f, "{setting}: {value}: refused: {why}"),
            Outcome::Unseen(why) => write!(
                f,
                "{setting}: {value}: cannot be read back: {why}; look at it, or undo it with --undo"
            ),
            Outcome::Undone => write!(f, "{setting}: {value} again"),
            Outcome::Changed(is) => write!(
                f,
                "{setting}: something else has changed it to {is}, so it is left; before it was {value}: {}",
                setting.command()
            ),
        }
    }
}

/// Sets what is wanted of one interface, or of the machine, in this order.
///
/// # Errors
/// If there can be no journal. Then nothing was set, or what was is in the journal that was written
/// last.
pub fn apply(
    kernel: &mut dyn Kernel,
    place: &Place,
    wanted: &[Wanted],
) -> Result<Vec<Told>, MendError> {
    let _lock = place.lock()?;
    let mut journal = Journal::load(place)?;
    let told = wanted.iter().map(|it| plan(kernel, &mut journal, it)).collect::<Vec<_>>();
    if told.iter().all(Option::is_some) {
        // What it keeps from earlier is as it was.
        return Ok(told.into_iter().flatten().collect());
    }
    journal.store(place)?;
    let mut all = Vec::new();
    for (wanted, told) in wanted.iter().zip(told) {
        let Some(told) = told else {
            let outcome = make(kernel, &mut journal, &wanted.setting);
            journal.store(place)?;
            let Wanted { check, setting } = wanted.clone();
            all.push(Told { check, setting, outcome });
            continue;
        };
        all.push(told);
    }
    Ok(all)
}

/// Notes what is there of a setting, or tells why it is not to be set.
fn plan(kernel: &mut dyn Kernel, journal: &mut Journal, wanted: &Wanted) -> Option<Told> {
    let Wanted { check, setting } = wanted.clone();
    let told = |outcome| Some(Told { check: check.clone(), setting: setting.clone(), outcome });
    let is = match kernel.read(&setting) {
        Ok(is) => is,
        Err(why) => return told(Outcome::Refused(why.to_string())),
    };
    if is == setting {
        return told(Outcome::Already(is.value()));
    }
    let noted = journal.steps.iter().position(|it| it.set.is_of_same(&setting));
    let noted = noted.map(|at| journal.steps.remove(at));
    // Of a value that is not ours any more, what was before ours is nobody's business.
    let ours = noted.filter(|it| it.is_ours(&is));
    if ours.as_ref().is_some_and(|it| it.set == setting && it.made.is_some()) {
        journal.steps.extend(ours);
        return told(Outcome::Already(is.value()));
    }
    let was = ours.map_or(is, |it| it.was);
    journal.steps.push(Step { check: check.clone(), was, set: setting, made: None });
    None
}

/// Sets what is in the journal, and notes what became of it.
fn make(kernel: &mut dyn Kernel, journal: &mut Journal, setting: &Setting) -> Outcome {
    let set = kernel.set(setting);
    let Some(at) = journal.steps.iter().rposition(|it| it.set == *setting) else {
        return Outcome::Unseen("it is wanted twice".to_owned());
    };
    let step = &mut journal.steps[at];
    let is = match kernel.read(setting) {
        Ok(is) => is,
        Err(why) => return Outcome::Unseen(set.err().unwrap_or(why).to_string()),
    };
    let was = step.was.value();
    if is == step.was {
        journal.steps.remove(at);
        let silent = || "it was taken, and nothing has changed".to_owned();
        return Outcome::Refused(set.map_or_else(|why| why.to_string(), |()| silent()));
    }
    step.made = Some(is.clone());
    if is == *setting { Outcome::Applied(was) } else { Outcome::Rounded(is.value()) }
}

/// Gives back the values that were there before, last ones first, where they are still ours.
///
/// # Errors
/// If there is a journal that cannot be gone by. Then nothing was set, or what was is not in it any
/// more.
pub fn undo(kernel: &mut dyn Kernel, place: &Place) -> Result<Vec<Told>, MendError> {
    let _lock = place.lock()?;
    let mut journal = Journal::load(place)?;
    let mut all = Vec::new();
    for at in (0..journal.steps.len()).rev() {
        let step = journal.steps[at].clone();
        let outcome = unmake(kernel, &step);
        let told = Told { check: step.check, setting: step.was, outcome };
        if !told.is_failure() {
            journal.steps.remove(at);
            journal.store(place)?;
        }
        all.push(told);
    }
    Ok(all)
}

fn unmake(kernel: &mut dyn Kernel, step: &Step) -> Outcome {
    let was = &step.was;
    let is = match kernel.read(was) {
        Ok(is) => is,
        Err(why) => return Outcome::Unseen(why.to_string()),
    };
    // One that died before it set anything, or before it noted that it had given it back.
    if is == *was {
        return Outcome::Undone;
    }
    if !step.is_ours(&is) {
        return Outcome::Changed(is.value());
    }
    let set = kernel.set(was);
    match kernel.read(was) {
        Ok(is) if is == *was => Outcome::Undone,
        Ok(is) => {
            let silent = || format!("it was taken, and it is {}", is.value());
            Outcome::Refused(set.map_or_else(|why| why.to_string(), |()| silent()))
        }
        Err(why) => Outcome::Unseen(set.err().unwrap_or(why).to_string()),
    }
}
