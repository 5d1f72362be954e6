//! A few derived keys that were used lately, ready for use: an optimisation and nothing else.
//!
//! Deriving K_d and setting it up costs a responder some 70 ns of the 170 ns in which it takes a request
//! (one core of a Zen 5 class machine, `aes-gcm`). Whoever reads again and again finds the key here. The
//! size is fixed and does not follow the number of peers (P5); an op that finds nothing costs what it costs
//! without. Once set-up itself is cheap, this module should go.
//!
//! Invariant: a key is put here only after a tag was right under it, so strangers cannot flush it; and none is
//! found once its region has another key.

use crate::crypto::KeyBinding;

/// Keys that are kept, about 0.4 KiB each.
const ENTRIES: usize = 16;

pub(super) struct KeyCache<K> {
    entries: [Option<Entry<K>>; ENTRIES],
}

struct Entry<K> {
    /// Which K_r: no two regions, nor two keys of one region, have the same.
    revision: u64,
    binding: KeyBinding,
    key: K,
}

impl<K> KeyCache<K> {
    pub(super) const fn new() -> Self {
        Self { entries: [const { None }; ENTRIES] }
    }

    /// Where the key of `binding` under the K_r of `revision` is, if it is here.
    pub(super) fn find(&self, revision: u64, binding: &KeyBinding) -> Option<Place> {
        let place = place(revision, binding);
        let entry = self.entries[place].as_ref()?;
        (entry.revision == revision && entry.binding == *binding).then_some(Place(place))
    }

    /// Keeps a key under which a tag was right.
    pub(super) fn insert(&mut self, revision: u64, binding: KeyBinding, key: K) -> Place {
        let place = place(revision, &binding);
        self.entries[place] = Some(Entry { revision, binding, key });
        Place(place)
    }

    /// The key at `place`.
    pub(super) fn at(&self, place: Place) -> &K {
        let entry = self.entries[place.0].as_ref();
        &entry.expect("a place is made for an entry, and entries are only replaced").key
    }
}

/// Where a key is, until the next `insert`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

/// Where a key would be. Neighbours in any field are apart.
fn place(revision: u64, binding: &KeyBinding) -> usize {
    let initiator = binding.initiator.to_octets();
    let tail = u32::from_be_bytes([initiator[12], initiator[13], initiator[14], initiator[15]]);
    let mixed = (revision as u32)
        .wrapping_add(binding.pid.0.wrapping_mul(3))
        .wrapping_add(tail.wrapping_mul(5))
        .wrapping_add(binding.op_type as u32 * 7);
    mixed as usize % ENTRIES
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
        let mut cache = KeyCache::new();
        let [one, other] = [1, 1 + ENTRIES as u64];
        assert_eq!(cache.find(one, &binding(1)), None);
        let place = cache.insert(one, binding(1), 'k');
        assert_eq!((cache.find(one, &binding(1)), cache.at(place)), (Some(place), &'k'));
        assert_eq!(cache.find(other, &binding(1)), None, "the same place");
        assert_eq!(cache.find(one, &binding(1 + ENTRIES as u32)), None, "the same place");
        let reversed = KeyBinding { responder: [192, 0, 2, 9].into(), ..binding(1) };
        assert_eq!(cache.find(one, &reversed), None);
        let write = KeyBinding { op_type: OpType::Write, ..binding(1) };
        assert_eq!(cache.find(one, &write), None);
    }
}
