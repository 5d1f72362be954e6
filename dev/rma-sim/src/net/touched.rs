//! The nodes at which something has happened, for those who look at no others.

use crate::net::frame::NodeId;

/// How many of the last are known.
const KNOWN: usize = 1 << 12;

/// The last nodes whose NIC, device or software was at work, each time.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    /// The nodes, by `count` modulo its length.
    last: Box<[NodeId]>,
    /// How often it was any of them.
    count: u64,
}

impl Default for Touched {
    fn default() -> Self {
        Self { last: vec![NodeId(0); KNOWN].into(), count: 0 }
    }
}

impl Touched {
    /// Something happens at `node`.
    pub(crate) fn push(&mut self, node: NodeId) {
        self.last[(self.count % KNOWN as u64) as usize] = node;
        self.count += 1;
    }

    /// How often something has happened.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// The nodes at which something has happened since it had `before` times; `None` if that is too
    /// long ago to tell.
    pub(crate) fn since(&self, before: u64) -> Option<impl Iterator<Item = NodeId>> {
        let is_known = self.count - before <= KNOWN as u64;
        is_known.then(|| (before..self.count).map(|it| self.last[(it % KNOWN as u64) as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_since_some_time_are_told_unless_that_is_too_long_ago() {
        let mut touched = Touched::default();
        (0..10).for_each(|node| touched.push(NodeId(node)));
        let since = |touched: &Touched, before| Some(touched.since(before)?.collect::<Vec<_>>());
        assert_eq!(since(&touched, 8), Some(vec![NodeId(8), NodeId(9)]));
        assert_eq!(since(&touched, 10), Some(vec![]));
        (0..KNOWN - 1).for_each(|_| touched.push(NodeId(7)));
        assert_eq!(since(&touched, 9).map(|it| (it.len(), it[0])), Some((KNOWN, NodeId(9))));
        assert_eq!(since(&touched, 8), None);
    }
}
