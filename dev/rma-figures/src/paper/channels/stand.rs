//! The hosts that figures of channels are measured on, rounds of them, and what their claims and
//! panels have in common.

use rma_bench::{
    aead,
    drawing::{Axis, CURVES_MAX, Curve, Form, Panel, Point, Scale as AxisScale},
    error::PairError,
    interrupt::Interrupt,
    latency::Latencies,
    pair::{Pair, PairConfig, Place},
    rates::rounds_of,
};
use rma_lab::{Lab, LabConfig};
use rma_xdp::channel::Kind;

use crate::{
    channels::{Channel, Shape},
    paper::{
        figure::{About, FigureFailed},
        points::{MeasuredOn, Points, Value},
        run::Run,
    },
};

/// Sizes of messages: one op carries the longest with its bell, whatever the kind.
pub(super) const SIZES: [u32; 5] = [16, 64, 256, 1024, 4000];
/// Those that are small.
pub(super) const SMALL: u32 = 64;
/// The longest one, in microseconds.
pub(super) const LONGEST: u32 = SIZES[SIZES.len() - 1];
/// Ops that a channel has under way at most.
pub(super) const SLOTS: u16 = 32;
/// Rounds of each value.
const ROUNDS: u64 = 5;
/// Rounds without which there is no verdict.
const ROUNDS_MIN: f64 = 3.0;
/// MTU of the veth pair.
const MTU: u32 = 3400;
/// The name of how many rounds counted where the fewest did.
const FEWEST: &str = "rounds of the value that has the fewest";

/// A veth pair, and the points of what is measured on it.
pub(super) struct Stand<'a> {
    lab: Lab,
    rounds: u64,
    fewest: u64,
    pub(super) interrupt: &'a Interrupt,
    pub(super) points: Points,
}

impl<'a> Stand<'a> {
    /// Hosts for a figure. `how` is what its conditions say besides.
    pub(super) fn new(about: &About, run: &Run<'a>, how: &str) -> Result<Self, FigureFailed> {
        let config = LabConfig { mtu: MTU, ..LabConfig::default() };
        let lab = Lab::new(&config).map_err(PairError::from)?;
        let rounds = run.seeds.unwrap_or(ROUNDS);
        let conditions = format!("veth MTU {MTU}; {rounds} rounds; {how}; {}", aead::words());
        let mut points = Points::new(about, conditions);
        points.measured_on = Some(MeasuredOn::here(rounds));
        Ok(Self { lab, rounds, fewest: rounds, interrupt: run.interrupt, points })
    }

    pub(super) fn pair(&self) -> Result<Pair, PairError> {
        Pair::open(Place::Lab(&self.lab), &PairConfig::patient())
    }

    /// Measures what `open` opens beside a pair, round by round.
    pub(super) fn rounds<T, V>(
        &mut self,
        mut open: impl FnMut(&Pair) -> Result<T, PairError>,
        mut measure: impl FnMut(&mut T, &mut Pair) -> Result<V, PairError>,
    ) -> Result<Vec<V>, PairError> {
        // The pair is dropped behind what is open on it.
        let opened = || {
            let pair = self.pair()?;
            Ok((open(&pair)?, pair))
        };
        let measure = |(what, pair): &mut (T, Pair)| measure(what, pair);
        let values = rounds_of(self.rounds, opened, measure)?;
        self.fewest = self.fewest.min(values.len() as u64);
        Ok(values)
    }

    /// The same of a channel of a kind, for messages of one size.
    pub(super) fn of_channel<V>(
        &mut self,
        kind: Kind,
        size: u32,
        measure: impl FnMut(&mut Channel, &mut Pair) -> Result<V, PairError>,
    ) -> Result<Vec<V>, PairError> {
        self.rounds(|pair| Channel::open(pair, shape(kind, size)), measure)
    }

    /// Adds a series: `values` gives what each size has.
    pub(super) fn add(
        &mut self,
        name: impl Into<String>,
        mut values: impl FnMut(&mut Self, u32) -> Result<Option<Value>, PairError>,
    ) -> Result<(), PairError> {
        let mut all = Vec::new();
        for size in SIZES {
            if self.interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
            all.extend(values(self, size)?);
        }
        self.points.push(name, all);
        Ok(())
    }

    /// The points, with how many rounds counted.
    pub(super) fn finish(mut self) -> Points {
        self.points.number(FEWEST, self.fewest as f64, "");
        self.points
    }
}

/// A channel for messages of one size.
pub(super) const fn shape(kind: Kind, size: u32) -> Shape {
    Shape { kind, len_max: size, room: 1 << 20, slots: SLOTS }
}

/// The middle of rates, none if no round counted.
pub(super) fn rate(size: u32, mut rates: Vec<f64>) -> Option<Value> {
    (!rates.is_empty()).then(|| Value::of(size.into(), &mut rates))
}

/// Messages a second, in MiB of them.
pub(super) fn mib(rate: f64, size: u32) -> f64 {
    rate * f64::from(size) / f64::from(1 << 20)
}

/// The median of all latencies, and where nine of ten lie; none if no round counted.
pub(super) fn median(size: u32, rounds: &[Latencies]) -> Option<Value> {
    let mut all = Latencies::new();
    rounds.iter().for_each(|it| all.merge(it));
    (!rounds.is_empty()).then(|| {
        let at = |quantile| all.quantile_us(quantile);
        Value::new(size.into(), at(0.5)).within(at(0.05), at(0.95))
    })
}

/// Whether there are points to be judged: enough rounds of each.
pub(super) fn has_verdict(points: &Points) -> bool {
    points.value(FEWEST).is_some_and(|it| it >= ROUNDS_MIN)
}

/// The ratios of two series at all sizes from the first of `sizes` to the last.
pub(super) fn over(points: &Points, of: &str, to: &str, sizes: [u32; 2]) -> Vec<f64> {
    let [first, last] = sizes.map(f64::from);
    let values = points.of(of).iter().filter(|it| (first..=last).contains(&it.x));
    // A value that the other has not is no number: then no claim holds.
    values.map(|it| it.y / points.at(to, it.x).unwrap_or(f64::NAN)).collect()
}

/// All sizes.
pub(super) const ALL: [u32; 2] = [SIZES[0], LONGEST];

/// A panel of series over sizes. `strip` is what all of their names end with, and curves' do not.
pub(super) fn panel(
    points: &Points,
    title: &str,
    y: &'static str,
    names: &[String],
    strip: &str,
) -> Panel {
    let values = || names.iter().flat_map(|name| points.of(name)).map(|it| it.y);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let scale = if high > 20.0 * low { AxisScale::Log } else { AxisScale::Linear };
    let curves = names.iter().enumerate().map(|(place, name)| Curve {
        name: name.strip_suffix(strip).unwrap_or(name).to_owned(),
        colour: place % CURVES_MAX,
        dash: 0,
        form: Form::Marked,
        points: points
            .of(name)
            .iter()
            .map(|it| Point { interval: it.interval, ..Point::new(it.x, it.y) })
            .collect(),
    });
    Panel {
        title: title.to_owned(),
        x: Axis { name: "bytes of a message", scale: AxisScale::Bytes },
        y: Axis { name: y, scale },
        curves: curves.collect(),
        marks: Vec::new(),
    }
}

/// The names of kinds, as their series have them.
pub(super) fn names(kinds: &[Kind]) -> Vec<String> {
    kinds.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Points of these series over these sizes, of as many rounds as there must be.
    pub(in super::super) fn points(about: &About, sizes: &[u32], all: &[(&str, &[f64])]) -> Points {
        let mut points = Points::new(about, "");
        for (name, values) in all {
            let values = sizes.iter().zip(*values).map(|(&at, &it)| Value::new(at.into(), it));
            points.push(*name, values.collect());
        }
        points.number(FEWEST, ROUNDS_MIN, "");
        points
    }

    #[test]
    fn with_fewer_than_three_rounds_there_is_no_verdict() {
        let about = &crate::paper::channels::copies::Copies;
        let about = crate::paper::figure::Figure::about(about);
        let mut points = points(&about, &[16], &[]);
        assert!(has_verdict(&points));
        points.numbers[0].value = 2.0;
        assert!(!has_verdict(&points));
    }
}
