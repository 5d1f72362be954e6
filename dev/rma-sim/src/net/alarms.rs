//! When each node wants to be woken, and who is first.
//!
//! A tree of minima above the nodes: to set one costs a step for each doubling of their number, and
//! nothing is looked through to find the first.

use rma_core::time::Instant;

use crate::net::frame::NodeId;

/// One alarm for each node, or none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alarms {
    /// The root at 1, those under `i` at `2 * i` and behind it, the nodes in the last half.
    earliest: Vec<Instant>,
}

/// No alarm: the end of time never comes.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl Alarms {
    /// No alarm of any of `nodes` nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { earliest: vec![NEVER; 2 * nodes.next_power_of_two()] }
    }

    /// Sets the alarm of `node`, or takes it away.
    pub(crate) fn set(&mut self, node: NodeId, at: Option<Instant>) {
        let mut place = self.earliest.len() / 2 + node.index();
        let mut at = at.unwrap_or(NEVER);
        while place > 0 && self.earliest[place] != at {
            self.earliest[place] = at;
            at = at.min(self.earliest[place ^ 1]);
            place /= 2;
        }
    }

    /// The alarm of `node`.
    #[cfg(test)]
    pub(crate) fn of(&self, node: NodeId) -> Option<Instant> {
        Some(self.earliest[self.earliest.len() / 2 + node.index()]).filter(|&at| at != NEVER)
    }

    /// When the first alarm is.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.earliest.get(1).copied().filter(|&at| at != NEVER)
    }

    /// The first alarm; of several at one time that of the node with the least number.
    pub(crate) fn first(&self) -> Option<(Instant, NodeId)> {
        let at = self.next_at()?;
        let nodes = self.earliest.len() / 2;
        let mut place = 1;
        while place < nodes {
            place *= 2;
            place += usize::from(self.earliest[place] != at);
        }
        Some((at, NodeId((place - nodes) as u16)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn the_first_alarm_is_that_of_a_search_of_all_nodes() {
        let mut prng = Prng::new(3);
        for nodes in [1, 2, 3, 5, 64, 100] {
            let (mut alarms, mut all) = (Alarms::new(nodes), vec![None; nodes]);
            for _ in 0..1000 {
                let node = prng.below(nodes as u64) as usize;
                let at = Instant::from_nanos(prng.below(50));
                all[node] = (prng.below(3) > 0).then_some(at);
                alarms.set(NodeId(node as u16), all[node]);
                let set = (0..).zip(&all).filter_map(|(node, at)| Some(((*at)?, NodeId(node))));
                let first = set.min();
                assert_eq!(alarms.first(), first);
                assert_eq!(alarms.next_at(), first.map(|(at, _)| at));
            }
        }
    }
}
