//! On which servers a key's copies are: rendezvous hashing.
//!
//! Each server has a weight for each key, and the heaviest hold it. So all clients agree without
//! asking anybody, and when a server is added or taken away only the keys move that it holds.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::layout::Tag;

/// Servers by their names, and how many of them hold each key.
#[derive(Clone, Debug)]
pub struct Placement {
    servers: Vec<u64>,
    copies: usize,
}

impl Placement {
    /// Of servers with these names, `copies` for each key, or all if there are fewer.
    pub fn new(names: impl IntoIterator<Item: AsRef<str>>, copies: usize) -> Self {
        let servers = names.into_iter().map(|it| xxh3_64(it.as_ref().as_bytes())).collect();
        Self { servers, copies }
    }

    /// The servers that hold a key, by their places among the names; the one to ask first is first.
    #[must_use]
    pub fn of(&self, tag: Tag) -> Vec<usize> {
        let weight = |server: &u64| xxh3_64_with_seed(&tag.0.to_le_bytes(), *server);
        let mut order: Vec<_> = self.servers.iter().map(weight).zip(0..).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.into_iter().take(self.copies).map(|(_, server)| server).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags() -> impl Iterator<Item = Tag> {
        (0..3000_u32).map(|it| Tag::of(&it.to_le_bytes()))
    }

    #[test]
    fn each_server_is_first_for_its_share_of_keys() {
        let placement = Placement::new(["a", "b", "c"], 2);
        let mut first = [0; 3];
        for tag in tags() {
            let of = placement.of(tag);
            assert_eq!(of.len(), 2);
            assert_ne!(of[0], of[1]);
            first[of[0]] += 1;
        }
        assert!(first.iter().all(|&it| it > 900), "{first:?}");
    }

    #[test]
    fn a_server_more_moves_only_what_it_takes() {
        let three = Placement::new(["a", "b", "c"], 1);
        let four = Placement::new(["a", "b", "c", "d"], 1);
        let mut moved = 0;
        for tag in tags() {
            if three.of(tag) != four.of(tag) {
                assert_eq!(four.of(tag), [3]);
                moved += 1;
            }
        }
        assert!((600..900).contains(&moved), "{moved}");
    }
}
