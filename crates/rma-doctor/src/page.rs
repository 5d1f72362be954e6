//! Findings as a page for people.

use core::fmt;

use crate::{
    finding::{Class, Finding, State},
    snapshot::{Interface, Machine, Snapshot},
};

/// How many findings have each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// As they should be.
    pub ok: usize,
    /// Worth knowing.
    pub note: usize,
    /// To be mended.
    pub mend: usize,
    /// Not seen.
    pub unknown: usize,
    /// Without meaning here.
    pub other: usize,
}

impl Count {
    /// Counts these findings.
    #[must_use]
    pub fn of<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Self {
        let mut count = Self::default();
        for finding in findings {
            *match finding.state {
                State::Ok => &mut count.ok,
                State::Note => &mut count.note,
                State::Mend => &mut count.mend,
                State::Unknown => &mut count.unknown,
                State::DoesNotApply => &mut count.other,
            } += 1;
        }
        count
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ok, note, mend, unknown, other } = self;
        let note_s = if *note == 1 { "" } else { "s" };
        let applies = if *other == 1 { "does" } else { "do" };
        write!(
            f,
            "{ok} ok, {note} note{note_s}, {mend} to mend, {unknown} unknown, {other} {applies} not apply"
        )
    }
}

/// A snapshot's findings, as text: what is to be mended first, then notes, then what was not seen;
/// all others if it is `verbose`.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The snapshot that was judged.
    pub snapshot: &'a Snapshot,
    /// Its findings.
    pub findings: &'a [Finding],
    /// Whether what is as it should be is shown as well.
    pub verbose: bool,
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.part(f, &of_machine(&self.snapshot.machine), None)?;
        for interface in &self.snapshot.interfaces {
            self.part(f, &of_interface(interface), Some(&interface.name))?;
        }
        if self.snapshot.interfaces.is_empty() {
            writeln!(f, "no interface was looked at: name one, as rma-bench doctor eth1")?;
        }
        Ok(())
    }
}

impl Page<'_> {
    fn part(&self, f: &mut fmt::Formatter<'_>, title: &str, of: Option<&String>) -> fmt::Result {
        let mut part: Vec<&Finding> =
            self.findings.iter().filter(|it| it.interface.as_ref() == of).collect();
        writeln!(f, "{title}")?;
        writeln!(f, "  {}", Count::of(part.iter().copied()))?;
        let is_told =
            |it: &&Finding| self.verbose || !matches!(it.state, State::Ok | State::DoesNotApply);
        part.retain(is_told);
        part.sort_by_key(|it| rank(it.state));
        part.iter().try_for_each(|it| line(f, it))
    }
}

const fn rank(state: State) -> u8 {
    match state {
        State::Mend => 0,
        State::Note => 1,
        State::Unknown => 2,
        State::Ok => 3,
        State::DoesNotApply => 4,
    }
}

fn line(f: &mut fmt::Formatter<'_>, finding: &Finding) -> fmt::Result {
    let word = match finding.state {
        State::Mend => "mend",
        State::Note => "note",
        State::Unknown => "unknown",
        State::Ok => "ok",
        State::DoesNotApply => "n/a",
    };
    let found = printable(&finding.found);
    write!(f, "  {word:<7} {:<14} {found}", finding.id)?;
    if matches!(finding.state, State::Mend | State::Note) {
        if let Some(wanted) = &finding.wanted {
            write!(f, " (wanted: {})", printable(wanted))?;
        }
        write!(f, ": {}", printable(&finding.why))?;
    }
    writeln!(f)?;
    match &finding.command {
        Some(command) => {
            let class = match finding.class {
                Class::Safe => "safe",
                Class::Link => "link",
                Class::Person => "person",
                Class::Bench => "bench",
            };
            let is_set = matches!(finding.class, Class::Person | Class::Bench)
                || !finding.settings.is_empty();
            let by_hand = if is_set { "" } else { ", by hand" };
            writeln!(f, "{:25}{}   [{class}{by_hand}]", "", printable(command))
        }
        None => Ok(()),
    }
}

/// A text without what a terminal would take for more than text.
fn printable(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { '?' } else { it }).collect()
}

fn of_machine(machine: &Machine) -> String {
    let kernel = machine.kernel.get().map_or("unknown", String::as_str);
    let cpuinfo = machine.files.text("proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find_map(|it| it.strip_prefix("model name")?.split_once(": "));
    let cores = machine.cores.get().map_or(0, Vec::len);
    let name = name.map_or("unknown processor", |it| it.1);
    printable(&format!("machine: {name}, {cores} cores, kernel {kernel}"))
}

fn of_interface(interface: &Interface) -> String {
    let mut parts = Vec::new();
    let kind = interface.link.get().ok().and_then(|it| it.kind.clone());
    let driver = interface.driver.get().ok().and_then(Clone::clone).or(kind);
    parts.push(driver.unwrap_or_else(|| "unknown driver".into()));
    if let Ok(Some(speed)) = interface.speed.get() {
        parts.push(if speed % 1000 == 0 {
            format!("{} Gbit/s", speed / 1000)
        } else {
            format!("{speed} Mbit/s")
        });
    }
    if let Ok(Some(bus)) = interface.bus.get() {
        let node = interface.files.find("device/numa_node").ok().flatten();
        let node = node.filter(|it| *it != "-1").map(|it| format!(" on NUMA node {it}"));
        parts.push(format!("at {bus}{}", node.unwrap_or_default()));
    }
    if let Ok(link) = interface.link.get() {
        parts.push(format!("MTU {}", link.mtu));
    }
    printable(&format!("{}: {}", interface.name, parts.join(", ")))
}
