//! A few derived keys that were used lately, ready for use: an optimisation and nothing else.
//!
//! Deriving K_d and setting it up costs a responder some 70 ns of the 170 ns in which it takes a request
//! (one core of a Zen 5 class machine, `aes-gcm`). Whoever reads again and again finds the key here. The
//! size is fixed and does not follow the number of peers (P5); an op that finds nothing costs what it costs
//! without. Once set-up itself is cheap, this module should go.
//!
//! Invariant: a key is put here only after a tag was right under it, so strangers cannot flush it; and none
//! outlives a change of the registered region table.

use super::region_table::RegionTable;
use crate::{crypto::KeyBinding, region::RegionId};

/// Keys that are kept, about 0.4 KiB each.
const ENTRIES: usize = 16;

pub(super) struct KeyCache<K> {
    entries: [Option<Entry<K>>; ENTRIES],
    /// The state of the region table that the entries belong to.
    revision: u64,
}

struct Entry<K> {
    region: RegionId,
    binding: KeyBinding,
    key: K,
}

impl<K: Clone> KeyCache<K> {
    pub(super) const fn new() -> Self {
        Self { entries: [const { None }; ENTRIES], revision: 0 }
    }

    /// The key of `binding` at `region`, if it is here.
    pub(super) fn get(
        &mut self,
        regions: &RegionTable,
        region: RegionId,
        binding: &KeyBinding,
    ) -> Option<K> {
        if self.revision != regions.revision() {
            self.entries = [const { None }; ENTRIES];
            self.revision = regions.revision();
        }
        let entry = self.entries[place(region, binding)].as_ref()?;
        (entry.region == region && entry.binding == *binding).then(|| entry.key.clone())
    }

    /// Keeps a key under which a tag was right.
    pub(super) fn insert(&mut self, region: RegionId, binding: KeyBinding, key: &K) {
        let entry = Entry { region, binding, key: key.clone() };
        self.entries[place(region, &binding)] = Some(entry);
    }
}

/// Where a key would be. Neighbours in any field are apart.
fn place(region: RegionId, binding: &KeyBinding) -> usize {
    let initiator = binding.initiator.to_octets();
    let tail = u32::from_be_bytes([initiator[12], initiator[13], initiator[14], initiator[15]]);
    let mixed = region
        .to_bits()
        .wrapping_add(binding.pid.0.wrapping_mul(3))
        .wrapping_add(tail.wrapping_mul(5));
    mixed as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rma_shm::Region;

    use super::*;
    use crate::{addr::Pid, crypto::RegionKey, nic::RegionEntry, op::OpType, region::Permissions};

    fn binding(pid: u32) -> KeyBinding {
        KeyBinding {
            initiator: [192, 0, 2, 1].into(),
            responder: [192, 0, 2, 2].into(),
            pid: Pid(pid),
            op_type: OpType::Read,
        }
    }

    #[test]
    fn a_key_is_found_for_its_own_binding_and_region_only() {
        let (regions, mut cache) = (RegionTable::new(4), KeyCache::new());
        let [one, other] = [1, 1 + ENTRIES as u32].map(RegionId::from_bits);
        assert_eq!(cache.get(&regions, one, &binding(1)), None);
        cache.insert(one, binding(1), &'k');
        assert_eq!(cache.get(&regions, one, &binding(1)), Some('k'));
        assert_eq!(cache.get(&regions, other, &binding(1)), None, "the same place");
        assert_eq!(cache.get(&regions, one, &binding(1 + ENTRIES as u32)), None, "the same place");
        let reversed = KeyBinding { responder: [192, 0, 2, 9].into(), ..binding(1) };
        assert_eq!(cache.get(&regions, one, &reversed), None);
    }

    #[test]
    fn no_key_outlives_a_change_of_the_region_table() {
        let (mut regions, mut cache) = (RegionTable::new(4), KeyCache::new());
        let memory = Arc::new(Region::new(1).unwrap());
        let key = RegionKey::from_bytes([0; 16]);
        let entry = RegionEntry::new(memory, &key, Permissions::READ, Pid(1));
        let id = regions.register(Box::new(entry)).unwrap();
        assert_eq!(cache.get(&regions, id, &binding(1)), None);
        cache.insert(id, binding(1), &'k');
        regions.deregister(id).unwrap();
        assert_eq!(cache.get(&regions, id, &binding(1)), None);
    }
}
