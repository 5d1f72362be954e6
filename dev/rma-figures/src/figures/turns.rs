//! Figures of rates and times: one side over the other, in turns, round by round.
//!
//! A side is a row too: its words, its unit, and how it is opened on a stage, whose hosts, links
//! and sockets exist once somebody asks for them.

use rma_bench::{
    aead,
    compare::Sockets,
    error::PairError,
    floor::Link,
    interrupt::Interrupt,
    pair::{Pair, PairConfig, Place},
    rates::{self, Measure},
};
use rma_lab::Lab;
use rma_xdp::star::StarConfigBuilder;

use super::{
    conditions::{CONDITIONS, MTU, lab, link, sockets},
    spec::Measured,
};

/// One measurement of a side, in a round.
pub(super) type Turn = dyn FnMut(&mut Stage, &Interrupt) -> Result<f64, PairError>;

/// A side of a figure: something that is measured once in each round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) words: &'static str,
    pub(super) unit: Unit,
    /// Opens all that it needs: hosts and links are the stage's, the rest is its own.
    pub(super) open: fn(&mut Stage) -> Result<Box<Turn>, PairError>,
}

/// The unit of what a side gives, for people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    name: &'static str,
    scale: f64,
}

/// Of a rate.
pub(super) const PER_S: Unit = Unit { name: "/s", scale: 1.0 };
/// Of bytes a second.
pub(super) const GBIT_PER_S: Unit = Unit { name: "Gbit/s", scale: 8e-9 };
/// Of a time in microseconds.
pub(super) const MICROS: Unit = Unit { name: "us", scale: 1.0 };

/// The hosts on which a figure is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hosts {
    /// Two over AF_XDP, as they are by default.
    Plain,
    /// The same, which wait longer for frames than a busy scheduler lets a thread wait.
    Patient,
    /// The same, which serve StaR beside 1RMA.
    Star,
    /// Two over UDP, on the veth pair of the kernel's sockets.
    Udp,
    /// None: its conditions are in the words.
    None,
}

/// A rate or a time, and what it is over, if anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    pub(super) of: Side,
    pub(super) over: Option<Side>,
    pub(super) hosts: Hosts,
    /// Rounds. An odd number has a middle one.
    pub(super) rounds: u64,
}

/// All that sides share.
pub(super) struct Stage {
    // Dropped in this order.
    pair: Option<Pair>,
    lab: Option<Lab>,
    link: Option<Link>,
    sockets: Option<Sockets>,
    hosts: Hosts,
}

impl Stage {
    const fn new(hosts: Hosts) -> Self {
        Self { pair: None, lab: None, link: None, sockets: None, hosts }
    }

    /// The pair of hosts.
    pub(super) fn pair(&mut self) -> Result<&mut Pair, PairError> {
        if self.pair.is_none() {
            let config = match self.hosts {
                Hosts::Plain | Hosts::Udp | Hosts::None => PairConfig::default(),
                Hosts::Patient => PairConfig::patient(),
                Hosts::Star => {
                    let star = Some(StarConfigBuilder::default());
                    PairConfig { star, ..PairConfig::default() }
                }
            };
            let pair = if matches!(self.hosts, Hosts::Udp) {
                Pair::open(Place::LabUdp(self.sockets()?.lab()), &config)?
            } else {
                Pair::open(Place::Lab(self.lab.insert(lab()?)), &config)?
            };
            self.pair = Some(pair);
        }
        Ok(self.pair.as_mut().expect("just opened"))
    }

    /// The link for raw floors.
    pub(super) fn link(&mut self) -> Result<&mut Link, PairError> {
        if self.link.is_none() {
            self.link = Some(link()?);
        }
        Ok(self.link.as_mut().expect("just opened"))
    }

    /// The kernel's own sockets.
    pub(super) fn sockets(&mut self) -> Result<&Sockets, PairError> {
        if self.sockets.is_none() {
            self.sockets = Some(sockets()?);
        }
        Ok(self.sockets.as_ref().expect("just opened"))
    }
}

impl Turns {
    /// `of` over `over`, on hosts as they are by default.
    pub(super) const fn new(of: Side, over: Side, rounds: u64) -> Self {
        Self { of, over: Some(over), hosts: Hosts::Plain, rounds }
    }

    /// A side alone, in its unit.
    pub(super) const fn single(of: Side, rounds: u64) -> Self {
        Self { of, over: None, hosts: Hosts::Plain, rounds }
    }

    pub(super) const fn on(self, hosts: Hosts) -> Self {
        Self { hosts, ..self }
    }

    pub(super) fn measure(&self, interrupt: &Interrupt) -> Result<Measured, PairError> {
        let &Self { of, over, hosts, rounds } = self;
        let mut stage = Stage::new(hosts);
        // Dropped before the stage.
        let mut first = (of.open)(&mut stage)?;
        let mut first = |stage: &mut Stage| first(stage, interrupt);
        let (value, all) = if let Some(over) = over {
            let mut second = (over.open)(&mut stage)?;
            let mut second = |stage: &mut Stage| second(stage, interrupt);
            let measures: [&mut Measure<'_, Stage>; 2] = [&mut first, &mut second];
            let all = rates::in_turns(&mut stage, measures, rounds, interrupt)?;
            (all[0].over(&all[1]), all.to_vec())
        } else {
            let all = rates::in_turns(&mut stage, [&mut first], rounds, interrupt)?;
            (all[0].median() * of.unit.scale, all.to_vec())
        };
        let sides = [Some(of), over];
        let parts: Vec<String> =
            sides.into_iter().flatten().zip(&all).map(|(side, rates)| side.says(rates)).collect();
        let conditions = match hosts {
            Hosts::None => String::new(),
            Hosts::Udp => format!(
                "; hosts over UDP, inline engines, one pinned core each, veth MTU {MTU}, {}",
                aead::words()
            ),
            Hosts::Plain | Hosts::Patient | Hosts::Star => {
                format!("; veth MTU {MTU}, {CONDITIONS}")
            }
        };
        let parts = parts.join(", over ");
        let detail = format!("{parts}; medians of {rounds} rounds in turns{conditions}");
        Ok(Measured::new(value, detail))
    }
}

impl Side {
    /// Its words, median and range.
    fn says(&self, rates: &rates::Rates) -> String {
        let Unit { name, scale } = self.unit;
        let (low, high) = rates.range();
        let [median, low, high] = [rates.median(), low, high].map(|it| it * scale);
        let digits = if median < 1000.0 { 2 } else { 0 };
        format!("{} {median:.digits$} {name} ({low:.digits$} to {high:.digits$})", self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Side =
        Side { words: "calls", unit: PER_S, open: |_| Ok(Box::new(|_, _| Ok(2_000.0))) };
    const FLOOD: Side =
        Side { words: "a flood", unit: GBIT_PER_S, open: |_| Ok(Box::new(|_, _| Ok(1.25e9))) };

    #[test]
    fn a_figure_is_one_side_over_the_other_and_says_both_in_their_units() {
        let uninterrupted = Interrupt::default();
        let ratio = Turns::new(FLOOD, TWO, 3).on(Hosts::None).measure(&uninterrupted).unwrap();
        assert_eq!(ratio.value, 625_000.0);
        let words = "a flood 10.00 Gbit/s (10.00 to 10.00), over calls 2000 /s (2000 to 2000); medians of 3 \
                     rounds in turns";
        assert_eq!(ratio.detail, words);
    }

    #[test]
    fn a_side_alone_is_a_figure_in_its_unit() {
        let single = Turns::single(FLOOD, 3).on(Hosts::None).measure(&Interrupt::default());
        assert_eq!(single.unwrap().value, 10.0);
    }
}
