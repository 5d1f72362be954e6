//! The prepared keys of ops under way, and of a few lately: who comes again finds the same one.
//!
//! Deriving K_d and setting it up costs a responder some 70 ns of the 170 ns in which it takes a request
//! (one core of a Zen 5 class machine, `aes-gcm`). Whoever reads again and again finds the key here. The
//! size is fixed and does not follow the number of peers (P5); an op that finds nothing costs what it costs
//! without. An op holds its key here until it is over: copying a third of a kilobyte into its record cost a sixth of
//! the engine's own share of a read. Once set-up itself is cheap, ops can carry K_d, and this module should go.
//!
//! Invariant: a key is put here only after a tag was right under it, so strangers cannot flush it; and none is
//! found once its region has another key. An entry is used again once no place and no op has it.

use crate::crypto::KeyBinding;

/// Places for keys that may be found again. A key that is replaced here stays until its last op is over.
const PLACES: usize = 16;

/// No key is in a place.
const NONE: u32 = u32::MAX;

pub(super) struct KeyCache<K> {
    /// All keys that there have been at once: one for each place and for each op under way, at most.
    entries: Vec<Entry<K>>,
    /// Those of them that nobody uses.
    free: Vec<u32>,
    places: [u32; PLACES],
}

struct Entry<K> {
    /// Which K_r: no two regions, nor two keys of one region, have the same.
    revision: u64,
    binding: KeyBinding,
    /// How many ops hold it, and one more while it is in its place.
    users: u32,
    key: K,
}

impl<K> KeyCache<K> {
    /// How many keys are kept besides those of ops under way.
    pub(super) const PLACES: u32 = PLACES as u32;

    /// Bytes that each key takes, of an op under way or kept.
    pub(super) const ENTRY_LEN: usize = size_of::<Entry<K>>() + size_of::<u32>();

    /// A cache for at most `ops` ops that hold keys.
    pub(super) fn new(ops: usize) -> Self {
        let entries = ops + PLACES;
        Self {
            entries: Vec::with_capacity(entries),
            free: Vec::with_capacity(entries),
            places: [NONE; PLACES],
        }
    }

    /// The key of `binding` under the K_r of `revision`, if it is here.
    pub(super) fn find(&self, revision: u64, binding: &KeyBinding) -> Option<KeyId> {
        let id = self.places[place(revision, binding)];
        let entry = self.entries.get(id as usize)?;
        (entry.revision == revision && entry.binding == *binding).then_some(KeyId(id))
    }

    /// Keeps a key under which a tag was right.
    pub(super) fn insert(&mut self, revision: u64, binding: KeyBinding, key: K) -> KeyId {
        let place = place(revision, &binding);
        let replaced = self.places[place];
        if replaced != NONE {
            self.release(KeyId(replaced));
        }
        let entry = Entry { revision, binding, users: 1, key };
        let id = if let Some(id) = self.free.pop() {
            self.entries[id as usize] = entry;
            id
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        self.places[place] = id;
        KeyId(id)
    }

    /// The key itself: just found or inserted, or held.
    pub(super) fn at(&self, id: KeyId) -> &K {
        &self.entries[id.0 as usize].key
    }

    /// Keeps a key that was just found or inserted until it is released.
    pub(super) fn hold(&mut self, id: KeyId) {
        self.entries[id.0 as usize].users += 1;
    }

    /// Gives up a key that was held.
    pub(super) fn release(&mut self, id: KeyId) {
        let users = &mut self.entries[id.0 as usize].users;
        *users -= 1;
        if *users == 0 {
            self.free.push(id.0);
        }
    }
}

/// Which key: until the next `insert`, or as long as it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyId(u32);

/// Where a key would be. Neighbours in any field are apart.
fn place(revision: u64, binding: &KeyBinding) -> usize {
    let initiator = binding.initiator.to_octets();
    let tail = u32::from_be_bytes([initiator[12], initiator[13], initiator[14], initiator[15]]);
    let mixed = (revision as u32)
        .wrapping_add(binding.pid.0.wrapping_mul(3))
        .wrapping_add(tail.wrapping_mul(5))
        .wrapping_add(binding.op_type as u32 * 7);
    mixed as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{addr::Pid, op::OpType};

    fn binding(pid: u32) -> KeyBinding {
        KeyBinding {
            initiator: [192, 0, 2, 1].into(),
            responder: [192, 0, 2, 2].into(),
            pid: Pid(pid),
            op_type: OpType::Read,
        }
    }

    #[test]
    fn a_key_is_found_for_its_own_binding_and_region_key_only() {
        let mut cache = KeyCache::new(1);
        let [one, other] = [1, 1 + PLACES as u64];
        assert_eq!(cache.find(one, &binding(1)), None);
        let place = cache.insert(one, binding(1), 'k');
        assert_eq!((cache.find(one, &binding(1)), cache.at(place)), (Some(place), &'k'));
        assert_eq!(cache.find(other, &binding(1)), None, "the same place");
        assert_eq!(cache.find(one, &binding(1 + PLACES as u32)), None, "the same place");
        let reversed = KeyBinding { responder: [192, 0, 2, 9].into(), ..binding(1) };
        assert_eq!(cache.find(one, &reversed), None);
        let write = KeyBinding { op_type: OpType::Write, ..binding(1) };
        assert_eq!(cache.find(one, &write), None);
    }

    #[test]
    fn a_key_that_is_held_outlives_its_place_and_its_room_is_used_again() {
        let mut cache = KeyCache::new(1);
        for round in 0..3 {
            let held = cache.insert(1, binding(1), 'a');
            cache.hold(held);
            let other = cache.insert(1 + PLACES as u64, binding(1), 'b');
            assert_eq!(cache.find(1, &binding(1)), None);
            assert_eq!((cache.at(held), cache.at(other)), (&'a', &'b'));
            cache.release(held);
            assert_eq!(cache.entries.len(), 2, "round {round}");
        }
    }
}
