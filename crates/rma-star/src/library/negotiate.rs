//! Which side of a connection is the stateful one (§III-C1).

use thiserror::Error;

use crate::names::Side;

/// Which side an application wants its host to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// F: for who has few connections.
    Stateful,
    /// Z: for who has very many.
    Stateless,
    /// Whichever the two hosts' numbers of connections speak for.
    #[default]
    Auto,
}

impl Role {
    /// All of them, in the order of their codes.
    const ALL: [Self; 3] = [Self::Stateful, Self::Stateless, Self::Auto];

    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// How many connections a host is the stateful side of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// How many it has.
    pub connections: u32,
    /// With how many more than this it would rather not have another.
    pub threshold: u32,
}

impl Load {
    const fn is_above(self) -> bool {
        self.connections > self.threshold
    }
}

/// Both applications want the same role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("both sides want to be the {0:?} one")]
pub struct RolesClash(pub Role);

/// Which side the one who answers an offer is.
///
/// A role that is wanted is given. If neither wants one: as soon as one host, or both, is above its
/// threshold, that with fewer connections is the stateful side, and of equals that which connects.
/// If neither is above, the paper takes normal RDMA, in which both are stateful. There is none
/// here: who connects is the stateful side then.
//= star#III-C1-explicit
//= star#III-C1-auto
pub(super) fn role_of_answerer(
    (offerer, offerers): (Role, Load),
    (answerer, answerers): (Role, Load),
) -> Result<Side, RolesClash> {
    match (offerer, answerer) {
        (Role::Auto, Role::Auto) => {
            let is_above = offerers.is_above() || answerers.is_above();
            let has_fewer = answerers.connections < offerers.connections;
            Ok(if is_above && has_fewer { Side::Stateful } else { Side::Stateless })
        }
        (_, Role::Stateful) if offerer != Role::Stateful => Ok(Side::Stateful),
        (Role::Stateless, Role::Auto) => Ok(Side::Stateful),
        (_, Role::Stateless) if offerer != Role::Stateless => Ok(Side::Stateless),
        (Role::Stateful, Role::Auto) => Ok(Side::Stateless),
        (role, _) => Err(RolesClash(role)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= star#III-C1-auto
    //= type=test
    #[test]
    fn the_side_with_fewer_is_stateful_and_of_equals_that_which_connects() {
        let auto = |offerers: u32, answerers: u32| {
            let load = |connections| Load { connections, threshold: 10 };
            let both = ((Role::Auto, load(offerers)), (Role::Auto, load(answerers)));
            role_of_answerer(both.0, both.1).unwrap()
        };
        assert_eq!(auto(11, 0), Side::Stateful);
        assert_eq!(auto(0, 11), Side::Stateless);
        assert_eq!(auto(20, 11), Side::Stateful);
        assert_eq!(auto(11, 20), Side::Stateless);
        assert_eq!(auto(11, 11), Side::Stateless, "of equals, who connects is stateful");
        assert_eq!(auto(10, 0), Side::Stateless, "no side is above");
    }

    //= star#III-C1-explicit
    //= type=test
    #[test]
    fn a_role_that_is_wanted_is_given_unless_both_want_it() {
        let load = Load { connections: 99, threshold: 0 };
        let roles = |offerer, answerer| role_of_answerer((offerer, load), (answerer, load));
        use Role::{Auto, Stateful, Stateless};
        assert_eq!(roles(Stateful, Stateless), Ok(Side::Stateless));
        assert_eq!(roles(Stateless, Stateful), Ok(Side::Stateful));
        assert_eq!(roles(Stateless, Auto), Ok(Side::Stateful));
        assert_eq!(roles(Stateful, Auto), Ok(Side::Stateless));
        assert_eq!(roles(Auto, Stateless), Ok(Side::Stateless));
        assert_eq!(roles(Auto, Stateful), Ok(Side::Stateful));
        assert_eq!(roles(Stateful, Stateful), Err(RolesClash(Stateful)));
        assert_eq!(roles(Stateless, Stateless), Err(RolesClash(Stateless)));
    }
}
