//! Sets of op types: what a rule allows, and what a client asks for.

use core::fmt;

use rma_core::op::OpType;

/// Types of op, each at most once, in the order of their codes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpSet(u32);

impl OpSet {
    /// No type of op.
    pub const NONE: Self = Self(0);

    /// These, and `op_type`.
    #[must_use]
    pub const fn with(self, op_type: OpType) -> Self {
        Self(self.0 | 1 << op_type as u32)
    }

    /// Whether `op_type` is among them.
    #[must_use]
    pub const fn contains(self, op_type: OpType) -> bool {
        self.0 >> op_type as u32 & 1 == 1
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the ops that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The types, in the order of their codes.
    pub fn iter(self) -> impl Iterator<Item = OpType> {
        OpType::ALL.into_iter().filter(move |&op_type| self.contains(op_type))
    }
}

impl FromIterator<OpType> for OpSet {
    fn from_iter<I: IntoIterator<Item = OpType>>(ops: I) -> Self {
        ops.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for OpSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        self.iter().try_for_each(|op_type| {
            write!(f, "{comma}{}", op_type.shape().name)?;
            comma = ",";
            Ok(())
        })
    }
}

impl fmt::Debug for OpSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_once_and_in_order() {
        let set: OpSet = [OpType::Rekey, OpType::Read, OpType::Rekey].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [OpType::Read, OpType::Rekey]);
        assert_eq!((set.len(), set.to_string()), (2, "READ,Rekey".to_owned()));
        assert!(!set.contains(OpType::Write) && set.contains(OpType::Read));
        assert!(set.and(OpSet::NONE.with(OpType::Write)).is_empty());
        let all: OpSet = OpType::ALL.into_iter().collect();
        assert_eq!(all.len(), OpType::ALL.len());
    }
}
