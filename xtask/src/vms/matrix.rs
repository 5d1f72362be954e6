//! The rows of the matrix, what each must be, and the table of what they were.

use std::collections::BTreeMap;

use super::{
    kernels::Series,
    machine::Model,
    scenario::{Shown, Totals},
};

/// The kernels of the matrix. The small ones lack most drivers.
const CLOUD_6_1: Series = Series { version: "6.1", flavour: "cloud", suite: None };
const CLOUD_6_12: Series = Series { version: "6.12", flavour: "cloud", suite: None };
const FULL_6_1: Series = Series { version: "6.1", flavour: "", suite: None };
pub(super) const FULL_6_12: Series = Series { version: "6.12", flavour: "", suite: None };
/// Those in which virtio_net and igb have zero-copy.
const NEWER: Option<&str> = Some("trixie-backports");
const CLOUD_6_18: Series = Series { version: "6.18", flavour: "cloud", suite: NEWER };
const FULL_6_18: Series = Series { version: "6.18", flavour: "", suite: NEWER };
const FULL_7_3: Series = Series { version: "7.3", flavour: "", suite: NEWER };

/// A pair of machines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) kernels: [Series; 2],
    pub(super) model: Model,
    pub(super) queues: u32,
    pub(super) mtu: u32,
    /// Whether a virtio NIC goes through the kernel's DMA interface, as zero-copy wants it.
    pub(super) dma: bool,
    /// Whether zero-copy is asked for.
    pub(super) asked_for: bool,
    pub(super) expected: Expected,
    /// Whether it is in the short form.
    pub(super) short: bool,
}

/// The expected result of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// XDP in the driver.
    Native,
    /// The same, and the driver works on the sockets' memory.
    ZeroCopy,
    /// XDP in the network stack.
    Generic,
    /// An error with this in it.
    Refused(&'static str),
}

impl Row {
    const fn new(kernels: [Series; 2], model: Model, expected: Expected) -> Self {
        let (dma, asked_for) = (false, false);
        Self { kernels, model, queues: 1, mtu: 1500, dma, asked_for, expected, short: false }
    }

    const fn queues(self, queues: u32) -> Self {
        Self { queues, ..self }
    }

    const fn jumbo(self) -> Self {
        Self { mtu: 9000, ..self }
    }

    const fn with_dma(self) -> Self {
        Self { dma: true, ..self }
    }

    const fn asked_for(self) -> Self {
        Self { asked_for: true, ..self }
    }

    const fn in_short(self) -> Self {
        Self { short: true, ..self }
    }

    /// Returns the description of the device that `rma-bench` has to print.
    pub(super) fn device(&self) -> String {
        let (mode, reason) = (self.mode(), self.reason());
        // The buffers of a socket hold 4 KiB.
        let buffers = if self.mtu > 4096 { ", multi-buffer" } else { "" };
        let copy = if matches!(self.expected, Expected::ZeroCopy) { "zero-copy" } else { "copy" };
        let Self { queues, mtu, .. } = self;
        format!("AF_XDP on eth0: {mode} ({reason}), {copy}, {queues} queue(s), MTU {mtu}{buffers}")
    }

    /// Lists the beginnings of the expected sentences about fallbacks: these and no others, in this
    /// order.
    pub(super) const fn fallbacks(&self) -> &'static [&'static str] {
        match (self.expected, self.model) {
            (Expected::Native, Model::Igb) => &[
                "copy mode instead of zero-copy: declined, as that of driver igb is known to lose \
                 all frames before Linux 7.0",
            ],
            (Expected::Native, Model::VirtioNet) if self.dma => &[
                "copy mode instead of zero-copy: declined, as that of driver virtio_net is known \
                 to lose all frames",
            ],
            (Expected::Native, _) => &["copy mode instead of zero-copy: "],
            (Expected::Generic, Model::Veth) => {
                &["copy mode instead of zero-copy: generic XDP has none"]
            }
            (Expected::Generic, _) => &[
                "copy mode instead of zero-copy: generic XDP has none",
                "generic XDP instead of native XDP: ",
            ],
            (Expected::ZeroCopy | Expected::Refused(_), _) => &[],
        }
    }

    /// Whether the server must be started again after its link was down.
    ///
    /// The driver vmxnet3, where XDP runs in it, does not run the program any more then, although
    /// it is attached: frames go to the kernel's stack until it is attached anew. So it was seen
    /// with Linux 6.12.
    pub(super) fn forgets_its_program(&self) -> bool {
        self.model == Model::Vmxnet3 && matches!(self.expected, Expected::Native)
    }

    const fn mode(&self) -> &'static str {
        match self.expected {
            Expected::Native | Expected::ZeroCopy => "native",
            Expected::Generic => "generic",
            Expected::Refused(_) => "refused",
        }
    }

    /// Returns the reason for that mode, as `rma-bench` must say it.
    const fn reason(&self) -> &'static str {
        match (self.expected, self.model) {
            (Expected::Generic, Model::Veth) => "faster on veth",
            (Expected::Generic, _) => "native was refused",
            _ if self.asked_for => "as asked for",
            _ => "the driver has XDP",
        }
    }

    /// For titles.
    pub(super) fn name(&self) -> String {
        let Self { model, queues, mtu, .. } = self;
        let [a, b] = self.kernels.map(|series| series.version);
        let driver = model.driver();
        let zero_copy = match self.expected {
            Expected::ZeroCopy => ", zero-copy",
            Expected::Refused(_) if self.asked_for => ", zero-copy",
            _ => "",
        };
        format!("{a} and {b}, {driver}, {queues} queue(s), MTU {mtu}{zero_copy}")
    }
}

const NO_MULTI_BUFFER: Expected = Expected::Refused("multi-buffer support");
const ONE_BUFFER: Expected =
    Expected::Refused("packets of one buffer only: `ip link set eth0 mtu 3818`");
/// The driver's word, where nothing is declined that it has.
const REFUSED_HERE: Expected = Expected::Refused("the driver offers it and refuses it here");

/// All rows. The second machine's kernel is the second's.
pub(super) const ROWS: &[Row] = {
    use Expected::{Generic, Native, ZeroCopy};
    use Model::{E1000e, Igb, Veth, VirtioNet, Vmxnet3};
    &[
        Row::new([CLOUD_6_1; 2], VirtioNet, Native).in_short(),
        Row::new([CLOUD_6_12; 2], VirtioNet, Native).in_short(),
        Row::new([CLOUD_6_1, CLOUD_6_12], VirtioNet, Native),
        Row::new([CLOUD_6_1; 2], VirtioNet, Native).queues(2),
        Row::new([CLOUD_6_12; 2], VirtioNet, Native).queues(2),
        Row::new([CLOUD_6_1; 2], VirtioNet, NO_MULTI_BUFFER).jumbo(),
        Row::new([CLOUD_6_12; 2], VirtioNet, Native).jumbo(),
        Row::new([CLOUD_6_12; 2], VirtioNet, Native).queues(2).jumbo(),
        Row::new([FULL_6_1; 2], E1000e, Generic),
        Row::new([FULL_6_12; 2], E1000e, Generic),
        Row::new([FULL_6_1; 2], E1000e, NO_MULTI_BUFFER).jumbo(),
        Row::new([FULL_6_12; 2], E1000e, Generic).jumbo(),
        Row::new([CLOUD_6_1; 2], Vmxnet3, Generic),
        Row::new([CLOUD_6_12; 2], Vmxnet3, Native),
        Row::new([CLOUD_6_1; 2], Veth, Generic),
        Row::new([CLOUD_6_12; 2], Veth, Generic),
        Row::new([CLOUD_6_1, CLOUD_6_12], Veth, Generic).in_short(),
        Row::new([CLOUD_6_1; 2], Veth, NO_MULTI_BUFFER).jumbo(),
        Row::new([CLOUD_6_12; 2], Veth, Generic).jumbo(),
        Row::new([CLOUD_6_18; 2], VirtioNet, Native).with_dma(),
        Row::new([CLOUD_6_18; 2], VirtioNet, ZeroCopy).with_dma().asked_for(),
        Row::new([CLOUD_6_18; 2], VirtioNet, ZeroCopy).with_dma().asked_for().queues(2),
        Row::new([CLOUD_6_18; 2], VirtioNet, ONE_BUFFER).with_dma().asked_for().jumbo(),
        Row::new([CLOUD_6_18; 2], VirtioNet, REFUSED_HERE).asked_for(),
        Row::new([FULL_7_3; 2], VirtioNet, ZeroCopy).with_dma().asked_for(),
        Row::new([FULL_6_18; 2], Igb, Native),
        Row::new([FULL_7_3; 2], Igb, ZeroCopy),
        Row::new([FULL_7_3; 2], Igb, ZeroCopy).queues(2),
        Row::new([FULL_7_3; 2], Igb, Generic).jumbo(),
    ]
};

/// The result of a row.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It went as it must.
    Right(Box<Shown>),
    /// It was refused as it must, with these words.
    Refused(String),
    /// It failed, for this reason.
    Failed(String),
    /// It could not be tried.
    NotRun(String),
}

/// The table's columns. The last is not padded: it has whole sentences.
const COLUMNS: [&str; 10] = [
    "kernels",
    "driver",
    "queues",
    "MTU",
    "XDP",
    "outcome",
    "verified",
    "rotations",
    "ended otherwise than with OK, and issued again",
    "what the hosts say",
];

/// The table, as text that is Markdown as well.
pub(super) fn table(rows: &[(Row, [String; 2], Outcome)]) -> String {
    let mut cells = vec![COLUMNS.map(str::to_owned)];
    cells.extend(rows.iter().map(|(row, releases, outcome)| cells_of(row, releases, outcome)));
    let last = COLUMNS.len() - 1;
    let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..last).map(width).chain([0]).collect();
    let mut text = String::new();
    for (index, row) in cells.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("| {cell:width$} "));
        }
        text.push_str("|\n");
        if index == 0 {
            for width in &widths {
                text.push_str(&format!("|-{}-", "-".repeat((*width).max(1))));
            }
            text.push_str("|\n");
        }
    }
    text
}

fn cells_of(row: &Row, [a, b]: &[String; 2], outcome: &Outcome) -> [String; COLUMNS.len()] {
    let kernels = if a == b { a.clone() } else { format!("{a}, {b}") };
    let (outcome, [verified, rotations, failed], said) = match outcome {
        Outcome::Right(shown) => {
            let mut said = shown.fallbacks.join("; ");
            if row.forgets_its_program() {
                said.push_str("; **after its link was down, the server had to be started again**");
            }
            ("all bytes right", counts(shown), said)
        }
        Outcome::Refused(message) => {
            ("refused, as it must be", Default::default(), message.clone())
        }
        Outcome::Failed(why) => ("FAILED", Default::default(), why.clone()),
        Outcome::NotRun(why) => ("NOT RUN", Default::default(), why.clone()),
    };
    [
        kernels,
        row.model.driver().to_owned(),
        row.queues.to_string(),
        row.mtu.to_string(),
        match row.expected {
            Expected::ZeroCopy => format!("{}, zero-copy", row.mode()),
            _ => row.mode().to_owned(),
        },
        outcome.to_owned(),
        verified,
        rotations,
        failed,
        // A cell is one line, and ends at a bar.
        said.replace('\n', " ").replace('|', "/"),
    ]
}

/// Returns the counts in words: what was verified, how many keys were rotated, which ops failed.
fn counts(shown: &Shown) -> [String; 3] {
    let all = [&shown.ipv4, &shown.ipv6, &shown.of_udp, &shown.by_udp];
    let sum = |of: fn(&Totals) -> u64| all.iter().map(|totals| of(totals)).sum::<u64>();
    let (ops, bytes) = (sum(|t| t.reads + t.writes), sum(|t| t.bytes));
    let mut failed: BTreeMap<&str, u64> = BTreeMap::new();
    for (status, count) in all.iter().flat_map(|totals| &totals.failed) {
        *failed.entry(status).or_default() += count;
    }
    let failed: Vec<String> = failed.iter().map(|(status, n)| format!("{n} {status}")).collect();
    [
        format!("{ops} ops, {:.1} MB", bytes as f64 / 1e6),
        sum(|t| t.rekeys).to_string(),
        failed.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row::new([CLOUD_6_1, CLOUD_6_12], Model::VirtioNet, Expected::Native)
    }

    #[test]
    fn a_row_says_how_its_device_must_be_described() {
        let expected = "AF_XDP on eth0: native (the driver has XDP), copy, 1 queue(s), MTU 1500";
        assert_eq!(row().device(), expected);
        let zero_copy = Row { expected: Expected::ZeroCopy, ..row().asked_for() };
        let expected = "AF_XDP on eth0: native (as asked for), zero-copy, 1 queue(s), MTU 1500";
        assert_eq!(zero_copy.device(), expected);
        assert!(zero_copy.fallbacks().is_empty());
        let jumbo = Row { expected: Expected::Generic, ..row().queues(2).jumbo() };
        let expected = "AF_XDP on eth0: generic (native was refused), copy, 2 queue(s), MTU 9000, multi-buffer";
        assert_eq!(jumbo.device(), expected);
        assert_eq!(jumbo.fallbacks().len(), 2);
        let veth = Row { model: Model::Veth, ..jumbo };
        assert!(veth.device().contains("generic (faster on veth)"), "{}", veth.device());
        assert_eq!(veth.fallbacks().len(), 1);
    }

    #[test]
    fn the_short_form_has_a_pair_of_each_kernel_and_one_of_both() {
        let short: Vec<_> = ROWS.iter().filter(|row| row.short).map(|row| row.kernels).collect();
        assert_eq!(short, [[CLOUD_6_1; 2], [CLOUD_6_12; 2], [CLOUD_6_1, CLOUD_6_12]]);
    }

    #[test]
    fn the_table_has_a_line_for_each_row_and_a_cell_for_each_column() {
        let totals = Totals {
            reads: 3,
            writes: 4,
            bytes: 100_000,
            rekeys: 2,
            failed: [("TIMEOUT".to_owned(), 5)].into(),
            ..Totals::default()
        };
        let shown = Shown { ipv4: totals.clone(), by_udp: totals, ..Shown::default() };
        let releases = ["6.1.0-1", "6.12.9"].map(str::to_owned);
        let rows = [
            (row(), releases.clone(), Outcome::Right(Box::new(shown))),
            (row(), releases.clone(), Outcome::Refused("no multi-buffer".into())),
            (row(), releases.clone(), Outcome::Failed("two\nlines | and a bar".into())),
            (row(), releases, Outcome::NotRun("no packages".into())),
        ];
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 2 + rows.len());
        let bars = |line: &&str| line.matches('|').count();
        assert!(lines.iter().all(|line| bars(line) == COLUMNS.len() + 1), "{table}");
        let parts = ["6.1.0-1, 6.12.9", "all bytes right", "14 ops, 0.2 MB", "| 4 ", "10 TIMEOUT"];
        assert!(parts.iter().all(|part| lines[2].contains(part)), "{table}");
        let marks = ["refused, as it must be", "FAILED", "NOT RUN"];
        assert!(lines[3..].iter().zip(marks).all(|(line, mark)| line.contains(mark)), "{table}");
        assert!(lines[4].contains("two lines / and a bar"), "{table}");
    }
}
