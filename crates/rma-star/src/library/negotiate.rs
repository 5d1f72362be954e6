//! The choice of a connection's stateful side (§III-C1).

use thiserror::Error;

use crate::names::Side;

/// The side that an application wants its host to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// F: for whoever has few connections.
    Stateful,
    /// Z: for whoever has very many.
    Stateless,
    /// Whichever the two hosts' numbers of connections speak for.
    #[default]
    Auto,
    /// Stateful, as the other side is too: a reliable connection as elsewhere (the paper's normal
    /// RDMA).
    Rc,
}

impl Role {
    /// All of them, in the order of their codes.
    const ALL: [Self; 4] = [Self::Stateful, Self::Stateless, Self::Auto, Self::Rc];

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
    pub(super) const fn is_above(self) -> bool {
        self.connections > self.threshold
    }

    /// Whether it would have another although its peer only would rather not: below half of what it
    /// would not have more than.
    pub(super) const fn has_much_room(self) -> bool {
        self.connections < self.threshold / 2
    }
}

/// The two applications want roles of which there is no connection: both the same one of StaR's, or
/// one of StaR's and [`Role::Rc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("one side wants {0:?}, and the other's wish does not go with it")]
pub struct RolesClash(pub Role);

/// The part of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The one side of StaR or the other.
    Of(Side),
    /// One of two stateful sides.
    Rc,
}

/// Returns the part of the side that answers an offer.
///
/// A role that is wanted is given. If neither wants one: as soon as one host, or both, is above its
/// threshold, that with fewer connections is the stateful side, and of equals that which connects.
/// If neither is above, both are stateful: normal RDMA.
//= star#III-C1-explicit
//= star#III-C1-auto
pub(super) fn part_of_answerer(
    offerer: Role,
    offerers: Load,
    answerer: Role,
    answerers: Load,
) -> Result<Part, RolesClash> {
    let side = match (offerer, answerer) {
        (Role::Auto, Role::Auto) => {
            if !offerers.is_above() && !answerers.is_above() {
                return Ok(Part::Rc);
            }
            let has_fewer = answerers.connections < offerers.connections;
            if has_fewer { Side::Stateful } else { Side::Stateless }
        }
        (Role::Rc, Role::Rc | Role::Auto) | (Role::Auto, Role::Rc) => return Ok(Part::Rc),
        (Role::Stateless | Role::Auto, Role::Stateful) | (Role::Stateless, Role::Auto) => {
            Side::Stateful
        }
        (Role::Stateful | Role::Auto, Role::Stateless) | (Role::Stateful, Role::Auto) => {
            Side::Stateless
        }
        (role, _) => return Err(RolesClash(role)),
    };
    Ok(Part::Of(side))
}

#[cfg(test)]
mod tests {
    use super::*;

    //= star#III-C1-auto
    //= type=test
    #[test]
    fn the_side_with_fewer_is_stateful_and_both_are_if_none_has_many() {
        let auto = |offerers: u32, answerers: u32| {
            let load = |connections| Load { connections, threshold: 10 };
            let [offerers, answerers] = [offerers, answerers].map(load);
            part_of_answerer(Role::Auto, offerers, Role::Auto, answerers).unwrap()
        };
        assert_eq!(auto(11, 0), Part::Of(Side::Stateful));
        assert_eq!(auto(0, 11), Part::Of(Side::Stateless));
        assert_eq!(auto(20, 11), Part::Of(Side::Stateful));
        assert_eq!(auto(11, 20), Part::Of(Side::Stateless));
        assert_eq!(auto(11, 11), Part::Of(Side::Stateless), "of equals, who connects is stateful");
        assert_eq!(auto(10, 10), Part::Rc, "no side is above");
    }

    //= star#III-C1-explicit
    //= type=test
    #[test]
    fn a_role_that_is_wanted_is_given_unless_both_want_it() {
        let load = Load { connections: 99, threshold: 0 };
        let roles = |offerer, answerer| part_of_answerer(offerer, load, answerer, load);
        use Role::{Auto, Rc, Stateful, Stateless};
        let (to_be_stateful, to_be_stateless) =
            (Ok(Part::Of(Side::Stateful)), Ok(Part::Of(Side::Stateless)));
        assert_eq!(roles(Stateful, Stateless), to_be_stateless);
        assert_eq!(roles(Stateless, Stateful), to_be_stateful);
        assert_eq!(roles(Stateless, Auto), to_be_stateful);
        assert_eq!(roles(Stateful, Auto), to_be_stateless);
        assert_eq!(roles(Auto, Stateless), to_be_stateless);
        assert_eq!(roles(Auto, Stateful), to_be_stateful);
        for (one, other) in [(Rc, Rc), (Rc, Auto), (Auto, Rc)] {
            assert_eq!(roles(one, other), Ok(Part::Rc));
        }
        for (one, other) in [(Stateful, Stateful), (Stateless, Stateless), (Rc, Stateful)] {
            assert_eq!(roles(one, other), Err(RolesClash(one)));
        }
        assert_eq!(roles(Stateless, Rc), Err(RolesClash(Stateless)));
    }
}
