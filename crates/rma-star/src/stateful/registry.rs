//! The whitelist (§III-D1, IV-B3): what the applications of Z have shared with connections of this
//! host, and the keys that make it so.
//!
//! A rule says what may be done with one memory region or window of Z, by F's own WRITEs and READs
//! of one connection. It is also the store of the keys: what has no rule here cannot be sealed, so
//! it cannot be sent, whoever asks for it. Z checks again by itself, and does not trust this.
//!
//! Rules are asked for when they are first needed (ours; the paper pushes them at each
//! registration). The table has a fixed size, and forgets the oldest rule if there is no room: it
//! is asked for again.

use rma_core::index_list::{IndexList, Links};

use super::slab::Slab;
use crate::{
    keys::FrameKey,
    names::MrId,
    verbs::{WcStatus, WqeOp},
    wire::Rule,
};

/// The most rules of one connection.
const RULES_MAX: usize = 32;

/// The rules of all connections.
#[derive(Debug)]
pub(super) struct Registry {
    rules: Slab<(u16, Rule)>,
    of_connection: Links,
    by_age: Links,
    oldest_first: IndexList,
}

impl Registry {
    /// Bytes that each rule takes.
    pub(super) const ENTRY_LEN: usize = Slab::<(u16, Rule)>::ENTRY_LEN + 2 * Links::ENTRY_LEN;

    /// Room for so many rules, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            rules: Slab::new(capacity),
            of_connection: Links::new(capacity),
            by_age: Links::new(capacity),
            oldest_first: IndexList::new(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.rules.capacity()
    }

    fn find(&self, list: &IndexList, mr: MrId) -> Option<u16> {
        list.iter(&self.of_connection).find(|&at| self.rules[at].1.mr == mr)
    }

    /// The key of `op` on `len` octets at `offset` of `mr`, by the rules in `list`. `None` if there
    /// is no rule: it must be asked for.
    ///
    /// # Errors
    /// The status that the work request fails with, if the rule does not allow that.
    //= star#III-D2-checked-before-sending
    //= star#III-D1-rules
    pub(super) fn key(
        &self,
        list: &IndexList,
        op: WqeOp,
        mr: MrId,
        offset: u64,
        len: u32,
    ) -> Option<Result<FrameKey, WcStatus>> {
        let rule = &self.rules[self.find(list, mr)?].1;
        let key = match op {
            WqeOp::Write => rule.write,
            WqeOp::Read => rule.read,
            WqeOp::Send | WqeOp::Recv => None,
        };
        let is_within = offset.checked_add(len.into()).is_some_and(|end| end <= rule.len);
        Some(key.filter(|_| is_within).ok_or(WcStatus::RemAccessErr))
    }

    /// Adds a rule to those of `connection` in its `list`, in place of the one that there is for
    /// the same region. Returns whose list the rule was in that had to make room, if that is
    /// another connection's: [`Registry::forget_oldest`] must be called first.
    pub(super) fn add(&mut self, connection: u16, list: &mut IndexList, rule: Rule) {
        self.drop_rule(list, rule.mr);
        if list.len() >= RULES_MAX
            && let Some(oldest) = list.front()
        {
            self.remove(list, oldest);
        }
        if let Some(at) = self.rules.insert((connection, rule)) {
            list.push_back(&mut self.of_connection, at);
            self.oldest_first.push_back(&mut self.by_age, at);
        }
    }

    /// Returns the connection with the oldest rule, if there is no room for another.
    pub(super) fn has_to_give(&self) -> Option<(u16, MrId)> {
        if self.rules.has_room() {
            return None;
        }
        let (connection, rule) = &self.rules[self.oldest_first.front()?];
        Some((*connection, rule.mr))
    }

    /// Forgets the rule of a region.
    pub(super) fn drop_rule(&mut self, list: &mut IndexList, mr: MrId) {
        if let Some(at) = self.find(list, mr) {
            self.remove(list, at);
        }
    }

    /// Forgets all rules of a connection.
    pub(super) fn drop_all(&mut self, list: &mut IndexList) {
        while let Some(at) = list.front() {
            self.remove(list, at);
        }
    }

    fn remove(&mut self, list: &mut IndexList, at: u16) {
        list.remove(&mut self.of_connection, at);
        self.oldest_first.remove(&mut self.by_age, at);
        let _ = self.rules.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(mr: u32, len: u64) -> Rule {
        let key = |octet| Some(FrameKey::from_bytes([octet; 16]));
        Rule { mr: MrId(mr), len, write: key(1), read: None }
    }

    //= star#III-D2-checked-before-sending
    //= type=test
    #[test]
    fn only_what_a_rule_allows_has_a_key() {
        let (mut registry, mut list) = (Registry::new(4), IndexList::new());
        let key = |registry: &Registry, list: &IndexList, op, mr, offset, len| {
            registry.key(list, op, MrId(mr), offset, len).map(|key| key.is_ok())
        };
        assert_eq!(key(&registry, &list, WqeOp::Write, 7, 0, 1), None);
        registry.add(0, &mut list, rule(7, 100));
        assert_eq!(key(&registry, &list, WqeOp::Write, 7, 0, 100), Some(true));
        assert_eq!(key(&registry, &list, WqeOp::Write, 7, 1, 100), Some(false));
        assert_eq!(key(&registry, &list, WqeOp::Write, 7, u64::MAX, 1), Some(false));
        assert_eq!(key(&registry, &list, WqeOp::Read, 7, 0, 1), Some(false));
        assert_eq!(key(&registry, &list, WqeOp::Send, 7, 0, 1), Some(false));
        assert_eq!(key(&registry, &IndexList::new(), WqeOp::Write, 7, 0, 1), None);
        registry.drop_rule(&mut list, MrId(7));
        assert_eq!(key(&registry, &list, WqeOp::Write, 7, 0, 1), None);
    }

    #[test]
    fn the_oldest_rule_makes_room_and_one_connection_has_so_many_at_most() {
        let (mut registry, mut list) = (Registry::new(2), IndexList::new());
        registry.add(3, &mut list, rule(1, 1));
        registry.add(3, &mut list, rule(1, 2));
        assert_eq!((list.len(), registry.has_to_give()), (1, None));
        registry.add(3, &mut list, rule(2, 1));
        assert_eq!(registry.has_to_give(), Some((3, MrId(1))));
        registry.drop_all(&mut list);
        assert_eq!((list.len(), registry.has_to_give()), (0, None));
        let mut registry = Registry::new(2 * RULES_MAX);
        for mr in 0..2 * RULES_MAX as u32 {
            registry.add(0, &mut list, rule(mr, 1));
        }
        assert_eq!(list.len(), RULES_MAX);
    }
}
