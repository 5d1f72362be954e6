//! A table that is asked by key, and whose order nobody sees.

use core::hash::{BuildHasherDefault, Hash, Hasher};
use std::collections::HashMap;

/// Values by their keys.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V>(HashMap<K, V, BuildHasherDefault<Products>>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// The value of `key`.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// The value of `key`, which is made if there is none.
    pub(crate) fn get_or_make(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key).or_insert_with(make)
    }

    /// Changes all values alike: in no order.
    pub(crate) fn change_all(&mut self, change: impl FnMut(&mut V)) {
        self.0.values_mut().for_each(change);
    }
}

/// A hash of a few words that no enemy chooses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Products(u64);

impl Hasher for Products {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|&word| self.write_u64(u64::from_le_bytes(word)));
        rest.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rma_core::addr::HostAddr;

    #[test]
    fn each_key_has_its_value_and_neighbours_have_other_hashes() {
        let mut table = Table::default();
        let host = |number: u16| HostAddr::from([10, 0, (number >> 8) as u8, number as u8]);
        (0..1000).for_each(|it| *table.get_or_make(host(it), || 0) += it);
        (0..1000).for_each(|it| *table.get_or_make(host(it), || 0) += 1);
        table.change_all(|it| *it *= 2);
        assert!((0..1000).all(|it| table.get(&host(it)) == Some(&(2 * it + 2))));
        assert_eq!(table.get(&host(1000)), None);
        let hash = |number| {
            let mut hasher = Products::default();
            host(number).hash(&mut hasher);
            hasher.finish() >> 48
        };
        let hashes: std::collections::BTreeSet<u64> = (0..1000).map(hash).collect();
        assert!(hashes.len() > 950, "{}", hashes.len());
    }
}
