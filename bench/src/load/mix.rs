//! The ops that a load consists of, and how often each comes.

use super::{op::LoadOp, places::Places};

/// Ops with weights.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// Each with the sum of the weights up to its own.
    ops: Vec<(LoadOp, u32)>,
    weights: u32,
}

impl Mix {
    /// One op alone.
    pub(crate) fn of(op: LoadOp) -> Self {
        Self { ops: vec![(op, 1)], weights: 1 }
    }

    /// Several, each with its weight, which is not 0.
    pub(crate) fn weighted(ops: impl IntoIterator<Item = (LoadOp, u32)>) -> Self {
        let mut weights = 0;
        let summed = |(op, weight)| {
            weights += weight;
            (op, weights)
        };
        let ops = ops.into_iter().map(summed).collect();
        Self { ops, weights }
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

    /// Draws one: its index.
    #[inline]
    pub(crate) fn draw(&self, places: &mut Places) -> usize {
        if self.ops.len() == 1 {
            return 0;
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
    }
}
