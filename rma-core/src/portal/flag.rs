//! A portal's flag: that its commands are worth a look (not in the paper, whose slots are the
//! NIC's own memory).
//!
//! The flags of up to 64 portals are one word ([`Flags`]), which the engine looks at in place of
//! their rings. Whoever makes portals hands flags out.

use std::sync::Arc;

use rma_shm::Flags;

/// One flag of a word of flags. Both ends of a portal have it: a clone is the same flag.
#[derive(Clone, Debug)]
pub struct Flag {
    flags: Flags,
    index: u32,
    /// Shared with the [`FlagLender`], which gives the flag to nobody else meanwhile.
    _lease: Option<Arc<()>>,
}

impl Flag {
    /// Flag `index`, modulo [`Flags::COUNT`], of `flags`: for whoever sees to it himself that no
    /// two portals have the same. If they do, nothing worse comes of it than that one of them may
    /// be looked at in every turn.
    #[must_use]
    pub const fn new(flags: Flags, index: u32) -> Self {
        Self { flags, index: index % Flags::COUNT, _lease: None }
    }

    /// The word that it is in.
    #[must_use]
    pub const fn flags(&self) -> &Flags {
        &self.flags
    }

    /// Returns its index among the word's flags, below [`Flags::COUNT`].
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Application, after commands: has the engine look at them. Ends with a sequentially
    /// consistent fence.
    #[inline]
    pub fn raise(&self) {
        self.flags.raise(self.index);
    }
}

/// Lends flags to the portals of one process, in as few words as there can be. A flag comes back
/// when both ends of its portal are gone.
#[derive(Debug, Default)]
pub struct FlagLender {
    words: Vec<(Flags, Vec<Arc<()>>)>,
}

impl FlagLender {
    /// A lender without words. It makes them as they are needed, for portals of this process.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// A flag that nobody else has.
    pub fn lend(&mut self) -> Flag {
        let free = self.words.iter_mut().find_map(|(flags, leases)| {
            let free = leases.iter_mut().position(|lease| Arc::get_mut(lease).is_some())?;
            Some(Self::flag(flags, leases, free))
        });
        free.unwrap_or_else(|| {
            let flags = Flags::new();
            let leases: Vec<_> = (0..Flags::COUNT).map(|_| Arc::new(())).collect();
            let flag = Self::flag(&flags, &leases, 0);
            self.words.push((flags, leases));
            flag
        })
    }

    fn flag(flags: &Flags, leases: &[Arc<()>], index: usize) -> Flag {
        Flag { flags: flags.clone(), index: index as u32, _lease: Some(leases[index].clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_lent_once_and_again_when_both_ends_of_its_portal_are_gone() {
        let mut lender = FlagLender::new();
        let lent: Vec<_> = (0..=Flags::COUNT).map(|_| lender.lend()).collect();
        let indexes: Vec<_> = lent.iter().map(Flag::index).collect();
        assert_eq!(indexes[..64], (0..64).collect::<Vec<_>>());
        assert_eq!((indexes[64], lender.words.len()), (0, 2));
        assert!(lent[0].flags().is(lent[63].flags()) && !lent[0].flags().is(lent[64].flags()));
        let other_end = lent[9].clone();
        let mut lent = lent;
        drop(lent.remove(9));
        assert_eq!(lender.lend().index(), 1, "the other end still has it");
        drop(other_end);
        assert_eq!(lender.lend().index(), 9);
    }
}
