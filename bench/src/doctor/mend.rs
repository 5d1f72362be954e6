//! `doctor --apply` and `--undo`: which findings are mended, which not, and why.

use std::{collections::BTreeSet, path::Path};

use clap::Args;
use rma_doctor::{
    Class, Finding, State,
    mend::{self, KernelError, Lifeline, MendError, Place, Running, Told, Wanted},
};

use crate::{line, route::interface_with};

/// The word for all that is safe.
const SAFE: &str = "safe";

/// The options by which something is mended.
#[derive(Args, Clone, Debug)]
pub struct MendArgs {
    /// Mend these checks: safe, for all to be mended that lose no packet; or names, separated by
    /// commas, of those that may drop the link for a moment as well. What was there is noted in
    /// /run/rma-bench/doctor first, and can be undone until the machine is started again.
    #[arg(long, value_name = "safe|NAMES", value_delimiter = ',', conflicts_with_all = ["undo", "from", "peer"])]
    apply: Vec<String>,
    /// Set back what --apply has set, where it is still as that left it.
    #[arg(long, conflicts_with_all = ["from", "peer"])]
    pub(super) undo: bool,
    /// Mend as well what may drop the link that the default route or this ssh connection goes by.
    #[arg(long, requires = "apply")]
    even_if_it_cuts_me_off: bool,
}

/// An error that kept all from being mended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotMended {
    /// There is no such check.
    #[error("there is no check {name}: those there are to mend are safe, {known}")]
    NoCheck {
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// It may cut the connection.
    #[error(
        "{check} may drop the link of {} for a moment, and {}: nothing is set; add --even-if-it-cuts-me-off, or name others",
        lifeline.interface, lifeline.use_
    )]
    CutsOff {
        /// The check.
        check: String,
        /// The interface, and what goes by it.
        lifeline: Lifeline,
    },
    /// There is no journal.
    #[error(transparent)]
    Journal(#[from] MendError),
    /// There is no such interface.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Some could not be set, as was said.
    #[error("{count} of them could not be set: each line above says why")]
    Some {
        /// How many.
        count: usize,
    },
}

impl MendArgs {
    /// Whether something is to be set, or set back.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.undo || !self.apply.is_empty()
    }

    /// Sets what was asked for of these findings, or sets it back on this interface, or on all; and
    /// tells of each.
    ///
    /// # Errors
    /// If nothing can be set, or not all.
    pub(crate) fn run(
        &self,
        interface: Option<&str>,
        findings: &[Finding],
    ) -> Result<(), NotMended> {
        if self.undo {
            return undo(interface);
        }
        let lifelines = mend::lifelines(Path::new("/"), &|address| {
            interface_with(address.split('%').next()?.parse().ok()?)
        });
        let chosen = self.choose(findings, &lifelines)?;
        let places: BTreeSet<Option<&str>> =
            chosen.iter().map(|it| it.interface.as_deref()).collect();
        let mut count = 0;
        for interface in places {
            let of = chosen.iter().filter(|it| it.interface.as_deref() == interface);
            let wanted: Vec<Wanted> = of
                .flat_map(|it| it.settings.iter().map(|setting| (it.id.clone(), setting.clone())))
                .map(|(check, setting)| Wanted { check, setting })
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let mut kernel = Running::new(interface)?;
            let place = Place::here(kernel.interface().cloned())?;
            count += say(&mend::apply(&mut kernel, &place, &wanted)?);
        }
        for finding in chosen.iter().filter(|it| it.settings.is_empty()) {
            count += usize::from(say_unset(finding));
        }
        if chosen.is_empty() {
            let left = findings.iter().filter(|it| it.state == State::Mend).count();
            line!("  {}", nothing(left));
        }
        if count > 0 { Err(NotMended::Some { count }) } else { Ok(()) }
    }

    /// The findings that are meant, if all of them may be mended.
    fn choose<'a>(
        &self,
        findings: &'a [Finding],
        lifelines: &[Lifeline],
    ) -> Result<Vec<&'a Finding>, NotMended> {
        let is_meant = |name: &str, it: &Finding| {
            let is_safe = it.class == Class::Safe && it.state == State::Mend;
            it.id == name || name == SAFE && is_safe && !it.settings.is_empty()
        };
        for name in self.apply.iter().filter(|it| *it != SAFE) {
            if !findings.iter().any(|it| it.id == *name) {
                let known: BTreeSet<&str> = findings.iter().map(|it| &*it.id).collect();
                let known = known.into_iter().collect::<Vec<_>>().join(", ");
                return Err(NotMended::NoCheck { name: name.clone(), known });
            }
        }
        let meant = findings.iter().filter(|it| self.apply.iter().any(|name| is_meant(name, it)));
        let meant: Vec<&Finding> = meant.collect();
        let cut = meant.iter().filter(|it| it.class == Class::Link && !it.settings.is_empty());
        for finding in cut.filter(|_| !self.even_if_it_cuts_me_off) {
            let is_of = |it: &&Lifeline| Some(&it.interface) == finding.interface.as_ref();
            if let Some(lifeline) = lifelines.iter().find(is_of).cloned() {
                return Err(NotMended::CutsOff { check: finding.id.clone(), lifeline });
            }
        }
        Ok(meant)
    }
}

/// Sets back what is noted of an interface, or of all that there are, and of the machine.
fn undo(interface: Option<&str>) -> Result<(), NotMended> {
    let all = || {
        let all = nix::ifaddrs::getifaddrs().into_iter().flatten().map(|it| it.interface_name);
        // An address may have a label, as eth0:1.
        let name = |it: String| it.split(':').next().unwrap_or_default().to_owned();
        all.map(name).collect::<BTreeSet<String>>()
    };
    let interfaces = interface.map_or_else(all, |it| BTreeSet::from([it.to_owned()]));
    let (mut count, mut said, mut last) = (0, 0, None);
    for interface in interfaces.iter().map(|it| Some(&**it)).chain([None]) {
        match undo_one(interface) {
            Ok(told) => {
                said += told.len();
                count += say(&told);
            }
            // The others are set back all the same.
            Err(why) => {
                if let Some(why) = last.replace(why) {
                    line!("  {why}");
                }
            }
        }
    }
    if let Some(why) = last {
        return Err(why);
    }
    if said == 0 {
        line!("  nothing is to be undone");
    }
    if count > 0 { Err(NotMended::Some { count }) } else { Ok(()) }
}

fn undo_one(interface: Option<&str>) -> Result<Vec<Told>, NotMended> {
    let mut kernel = Running::new(interface)?;
    let place = Place::here(kernel.interface().cloned())?;
    Ok(mend::undo(&mut kernel, &place)?)
}

/// Tells what became of each, and returns how many failed.
fn say(told: &[Told]) -> usize {
    for it in told {
        line!("  {:<14}{it}", it.check);
    }
    told.iter().filter(|it| it.is_failure()).count()
}

/// Tells that nothing is set, with so many findings to be mended otherwise.
fn nothing(left: usize) -> String {
    match left {
        0 => "nothing is to be mended".to_owned(),
        _ => format!(
            "nothing is set: none of the {left} to mend is safe and can be set here; without --apply \
             each is shown with its command"
        ),
    }
}

/// Tells why nothing is set of a check that was named, and whether that is a failure.
fn say_unset(Finding { id, state, found, why, command, .. }: &Finding) -> bool {
    let by_hand = |command: &String| format!("a person decides on that: {command}");
    let words = match state {
        State::Ok => format!("{found} already"),
        State::Unknown => format!("not seen: {found}"),
        State::DoesNotApply => format!("does not apply: {found}"),
        _ => command.as_ref().map_or_else(|| why.clone(), by_hand),
    };
    line!("  {id:<14}{words}");
    matches!(state, State::Unknown | State::Mend)
}

#[cfg(test)]
mod tests {
    use rma_doctor::Setting;

    use super::*;

    fn finding(id: &str, state: State, class: Class) -> Finding {
        let interface = || "eth1".to_owned();
        Finding {
            id: id.to_owned(),
            interface: Some(interface()),
            state,
            found: String::new(),
            wanted: None,
            why: String::new(),
            command: None,
            class,
            settings: vec![Setting::Mtu { interface: interface(), mtu: 1500 }],
        }
    }

    fn chosen(apply: &[&str], even_if_it_cuts_me_off: bool) -> Result<Vec<String>, String> {
        let findings = [
            finding("lro", State::Mend, Class::Safe),
            finding("gro", State::Ok, Class::Safe),
            finding("mtu", State::Mend, Class::Link),
            Finding { settings: Vec::new(), ..finding("kernel", State::Mend, Class::Person) },
        ];
        let lifelines = [Lifeline { interface: "eth1".to_owned(), use_: "ssh comes by it" }];
        let apply = apply.iter().map(|it| (*it).to_owned()).collect();
        let args = MendArgs { apply, undo: false, even_if_it_cuts_me_off };
        let chosen = args.choose(&findings, &lifelines).map_err(|it| it.to_string())?;
        Ok(chosen.into_iter().map(|it| it.id.clone()).collect())
    }

    #[test]
    fn safe_ones_are_mended_together_and_others_by_name() {
        assert_eq!(chosen(&["safe"], false).unwrap(), ["lro"]);
        assert_eq!(chosen(&["gro", "kernel"], false).unwrap(), ["gro", "kernel"]);
        assert_eq!(chosen(&["safe", "mtu"], true).unwrap(), ["lro", "mtu"]);
    }

    #[test]
    fn a_check_that_does_not_exist_and_one_that_cuts_the_connection_are_refused() {
        let none = chosen(&["safe", "lor"], true).unwrap_err();
        assert!(none.contains("no check lor") && none.contains("gro, kernel, lro, mtu"), "{none}");
        let cut = chosen(&["safe", "mtu"], false).unwrap_err();
        for part in ["mtu may drop the link of eth1", "ssh comes by it", "--even-if-it-cuts-me-off"]
        {
            assert!(cut.contains(part), "{part}: {cut}");
        }
    }
}
