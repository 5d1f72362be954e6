//! The ops that a load consists of, and how often each comes.

use super::{op::LoadOp, places::Places};

/// Ops with weights.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// Each with the sum of the weights up to its own.
    ops: Vec<(LoadOp, u32)>,
    weights: u32,
    /// Whether they come one after the other instead of by chance.
    in_turns: bool,
}

impl Mix {
    /// One op alone.
    pub(crate) fn of(op: LoadOp) -> Self {
        Self::in_turns([op])
    }

    /// Several, one after the other. Which is the first follows from the seed.
    pub(crate) fn in_turns(ops: impl IntoIterator<Item = LoadOp>) -> Self {
        Self { in_turns: true, ..Self::weighted(ops.into_iter().map(|op| (op, 1))) }
    }

    /// Several, each with its weight, which is not 0.
    pub(crate) fn weighted(ops: impl IntoIterator<Item = (LoadOp, u32)>) -> Self {
        let mut weights = 0;
        let summed = |(op, weight)| {
            weights += weight;
            (op, weights)
        };
        let ops = ops.into_iter().map(summed).collect();
        Self { ops, weights, in_turns: false }
    }

    /// The ops, in order of their index.
    pub(crate) fn ops(&self) -> impl ExactSizeIterator<Item = LoadOp> {
        self.ops.iter().map(|&(op, _)| op)
    }

    /// The op with this index.
    #[inline]
    pub(crate) fn op(&self, kind: usize) -> LoadOp {
        self.ops[kind].0
    }

    /// The share of all ops that those with this index are.
    pub(crate) fn share(&self, kind: usize) -> f64 {
        let before = kind.checked_sub(1).map_or(0, |it| self.ops[it].1);
        f64::from(self.ops[kind].1 - before) / f64::from(self.weights)
    }

    /// Draws one: its index.
    #[inline]
    pub(crate) fn draw(&self, places: &mut Places) -> usize {
        if self.ops.len() == 1 {
            return 0;
        }
        if self.in_turns {
            return places.turn(self.ops.len());
        }
        let drawn = places.draw_below(self.weights);
        self.ops.partition_point(|&(_, up_to)| up_to <= drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Area;

    #[test]
    fn ops_come_as_often_as_their_weights_say() {
        let mix = Mix::weighted([(LoadOp::Read, 90), (LoadOp::Write, 10)]);
        let mut places = Places::new(Area { offset: 0, len: 4096 }, 64, 1);
        let writes = (0..10_000).filter(|_| mix.op(mix.draw(&mut places)) == LoadOp::Write).count();
        assert!((900..1100).contains(&writes), "{writes}");
        assert_eq!([0, 1].map(|kind| mix.share(kind)), [0.9, 0.1]);
    }

    #[test]
    fn both_directions_are_halves_exactly_and_the_seed_says_which_is_first() {
        let mix = Mix::in_turns([LoadOp::Read, LoadOp::Write]);
        let drawn = |seed| {
            let mut places = Places::new(Area { offset: 0, len: 4096 }, 64, seed);
            (0..1000).map(|_| mix.draw(&mut places)).collect::<Vec<_>>()
        };
        for seed in 0..8 {
            let all = drawn(seed);
            assert_eq!(all.iter().sum::<usize>(), 500);
            assert!(all.windows(2).all(|it| it[0] != it[1]) && all == drawn(seed));
        }
        assert!((1..8).any(|seed| drawn(seed)[0] != drawn(0)[0]));
        assert_eq!(mix.share(1), 0.5);
    }
}
