//! The turns that portals take within a turn of a service (not in the paper).
//!
//! A turn takes a bounded number of commands, so that frames wait no longer however many portals
//! are busy. The tenants that have commands share that number in equal parts: a tenant with many
//! portals, or with portals full of commands that make no sense, holds up no other tenant's (P13).
//! The portals of a tenant take turns, a command each.
//!
//! Invariant: a portal that was cut off, as its tenant's part was used up, is the first of its
//! tenant in the next turn; a tenant that was cut off, as the whole turn was, is the first tenant.

use crate::tenant::TenantIndex;

/// The portals that commands are taken from, by their numbers.
pub trait TakeCommands {
    /// The tenant that a portal is of.
    fn tenant_of(&self, portal: u16) -> TenantIndex;

    /// Takes the next command of a portal. Returns how many it counts for, at least one; `None` if
    /// there is none.
    fn take_command(&mut self, portal: u16) -> Option<usize>;
}

/// The most commands that a turn takes.
#[derive(Clone, Copy, Debug)]
pub struct PerTurn {
    /// From one portal, so that a busy one holds up neither the frames nor the next turn for long.
    pub portal: usize,
    /// From all portals, with those that count for more than one; the last may count for more than
    /// is left. More: frames wait longer beside busy portals. Fewer: many portals that issue a
    /// burst together wait for more turns.
    pub all: usize,
}

/// The next tenant, and the next portal of each.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// The tenant that is served first.
    tenant: u16,
    /// The portal of each tenant that is served first.
    portals: [u16; TenantIndex::COUNT],
}

impl Turns {
    /// Nobody has had a turn.
    pub const NEW: Self = Self { tenant: 0, portals: [0; TenantIndex::COUNT] };

    /// Takes commands from the portals of `busy`, each of which it names once and in any order.
    /// Returns how many were taken.
    ///
    /// Whoever is served first in this turn is the last in the next one in which any has commands.
    /// A turn in which no portal has a command leaves that order as it is: an engine takes its
    /// turns in rhythms of its own, which must not decide who is first.
    #[inline]
    pub fn take(
        &mut self,
        per_turn: PerTurn,
        busy: &mut [u16],
        portals: &mut impl TakeCommands,
    ) -> usize {
        if let &mut [portal] = busy {
            // As in most turns.
            let tenant = portals.tenant_of(portal).index();
            let mut rest = per_turn.all as isize;
            let taken = take_from(portals, portal, per_turn.portal, &mut rest);
            self.tenant = tenant as u16 + 1;
            self.portals[tenant] = portal + u16::from(rest > 0);
            return taken;
        }
        let tenant_of = |portals: &_, &portal: &u16| TakeCommands::tenant_of(portals, portal);
        // By their numbers, whatever the order in which their flags went up.
        busy.sort_unstable_by_key(|portal| (tenant_of(portals, portal).index(), *portal));
        let is_before = |portal: &_| tenant_of(portals, portal).index() < self.tenant.into();
        let before_first = busy.partition_point(is_before);
        busy.rotate_left(before_first);
        let Some(first) = busy.first().map(|portal| tenant_of(portals, portal)) else { return 0 };
        self.tenant = first.index() as u16 + 1;
        let is_same = |a: &_, b: &_| tenant_of(portals, a) == tenant_of(portals, b);
        let tenants = busy.chunk_by(is_same).count();
        let part = per_turn.all.div_ceil(tenants) as isize;
        let (mut taken, mut left, mut busy) = (0, per_turn.all as isize, busy);
        while let Some(tenant) = busy.first().map(|portal| tenant_of(portals, portal)) {
            if left <= 0 {
                self.tenant = tenant.index() as u16;
                break;
            }
            let len = busy.partition_point(|portal| tenant_of(portals, portal) == tenant);
            let (its, others) = busy.split_at_mut(len);
            let (first, mut rest) = (&mut self.portals[tenant.index()], part.min(left));
            left -= rest;
            taken += take_of(first, per_turn.portal, its, portals, &mut rest);
            left += rest;
            busy = others;
        }
        taken
    }
}

/// Takes commands from the portals of one tenant, which `busy` has in the order of their numbers,
/// as long as there is anything of `rest`, and not more than `most` of each.
#[inline]
fn take_of(
    first: &mut u16,
    most: usize,
    busy: &mut [u16],
    portals: &mut impl TakeCommands,
    rest: &mut isize,
) -> usize {
    busy.rotate_left(busy.partition_point(|portal| portal < first));
    *first = busy[0] + 1;
    let mut taken = 0;
    let (mut round, mut count) = (0, busy.len());
    while round < most && count > 0 {
        // A portal that is alone needs to take no turns.
        let rounds = if count == 1 { most - round } else { 1 };
        let mut left = 0;
        for at in 0..count {
            let portal = busy[at];
            if *rest <= 0 {
                *first = portal;
                return taken;
            }
            let its = take_from(portals, portal, rounds, rest);
            taken += its;
            if its == rounds {
                // It may have more.
                busy[left] = portal;
                left += 1;
            } else if *rest <= 0 {
                *first = portal;
            }
        }
        count = left;
        round += rounds;
    }
    taken
}

/// Takes up to `most` commands from a portal, as long as there is anything of `rest`. Returns how
/// many.
#[inline]
fn take_from(portals: &mut impl TakeCommands, portal: u16, most: usize, rest: &mut isize) -> usize {
    let mut taken = 0;
    while taken < most && *rest > 0 {
        let Some(cost) = portals.take_command(portal) else { break };
        *rest -= cost as isize;
        taken += 1;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_TURN: PerTurn = PerTurn { portal: 4, all: 16 };

    /// Portals: the tenant of each, how many commands it has, and what each of them counts for.
    struct Scene {
        portals: Vec<(usize, usize, usize)>,
        turns: Turns,
    }

    impl TakeCommands for Vec<(usize, usize, usize)> {
        fn tenant_of(&self, portal: u16) -> TenantIndex {
            TenantIndex::of(self[usize::from(portal)].0)
        }

        fn take_command(&mut self, portal: u16) -> Option<usize> {
            let (_, left, cost) = &mut self[usize::from(portal)];
            *left = left.checked_sub(1)?;
            Some(*cost)
        }
    }

    impl Scene {
        fn new(portals: &[(usize, usize, usize)]) -> Self {
            Self { portals: portals.to_vec(), turns: Turns::NEW }
        }

        /// How many commands a turn took of each portal.
        fn turn(&mut self) -> Vec<usize> {
            let before: Vec<_> = self.portals.iter().map(|it| it.1).collect();
            let busy = (0..self.portals.len() as u16).rev();
            let mut busy: Vec<_> = busy.filter(|&it| before[usize::from(it)] > 0).collect();
            let taken = self.turns.take(PER_TURN, &mut busy, &mut self.portals);
            let by_portal = before.iter().zip(&self.portals).map(|(was, it)| was - it.1);
            let by_portal: Vec<_> = by_portal.collect();
            assert_eq!(taken, by_portal.iter().sum::<usize>());
            by_portal
        }
    }

    #[test]
    fn a_tenant_has_its_part_of_a_turn_beside_one_with_many_portals() {
        let mut portals = vec![(1, 100, 1); 10];
        portals.push((2, 100, 1));
        let mut scene = Scene::new(&portals);
        for _ in 0..10 {
            let taken = scene.turn();
            assert_eq!(taken[10], PER_TURN.portal);
            assert_eq!(taken[..10].iter().sum::<usize>(), PER_TURN.all / 2);
        }
        assert!(scene.portals[..10].iter().all(|it| it.1 == 92), "{:?}", scene.portals);
    }

    #[test]
    fn a_command_that_counts_for_many_uses_up_the_part_of_its_tenant_alone() {
        let mut portals = vec![(1, 3, PER_TURN.all / 2); 5];
        portals.push((2, 8, 1));
        let mut scene = Scene::new(&portals);
        assert_eq!(scene.turn(), [1, 0, 0, 0, 0, 4]);
        assert_eq!(scene.turn(), [0, 1, 0, 0, 0, 4], "who was cut off is first");
        assert_eq!(scene.turn(), [0, 0, 1, 1, 0, 0], "it has the turn for itself");
    }

    #[test]
    fn a_portal_that_is_cut_off_is_first_again_also_if_it_is_the_last_with_commands() {
        let mut scene = Scene::new(&[(1, 1, 1), (1, 9, 7)]);
        assert_eq!(scene.turn(), [1, 3]);
        assert_eq!(scene.turns.portals[1], 1);
        assert_eq!(scene.turn(), [0, 3]);
        assert_eq!(scene.turns.portals[1], 1, "beside none");
    }

    #[test]
    fn a_tenant_that_is_alone_has_the_whole_turn() {
        let mut scene = Scene::new(&[(3, 100, 1); 5]);
        assert_eq!(scene.turn(), [4, 3, 3, 3, 3]);
        assert_eq!(scene.turn(), [3, 4, 3, 3, 3]);
    }

    #[test]
    fn many_tenants_take_no_more_of_a_turn_than_few() {
        let mut scene = Scene::new(&[0; 40].map(|_| (0, 9, 8)));
        (0..40).for_each(|tenant| scene.portals[tenant].0 = tenant);
        let mut all = [0; 40];
        for _ in 0..20 {
            let taken = scene.turn();
            assert_eq!(taken.iter().sum::<usize>(), PER_TURN.all / 8);
            all.iter_mut().zip(taken).for_each(|(all, taken)| *all += taken);
        }
        assert_eq!(all, [1; 40], "each has had its turn");
    }
}
