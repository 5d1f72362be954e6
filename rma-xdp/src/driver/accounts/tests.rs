//! The books against a model that keeps nothing but lists: every sum is taken anew, every slot
//! looked at.

use super::*;
use proptest::prelude::*;

const SIZES: PoolSizes = PoolSizes { slots: 24, regions: 6 };

struct PoolSizes {
    slots: u16,
    regions: u64,
}

fn capacities() -> Capacities {
    Capacities::of_regions(SIZES.regions as u32)
}

fn accounts(config: &DriverConfig) -> Result<Accounts, AllocationError> {
    Accounts::new(core::iter::once(0..SIZES.slots), &capacities(), config, PID)
}

const BYTES: u64 = 1000;
const PID: Pid = Pid(1);

fn config(quotas: Quotas) -> DriverConfig {
    let kept_free = KeptFree { by_low: 40, by_normal: 15 };
    DriverConfig { registered_bytes: BYTES, kept_free, quotas, ..DriverConfig::default() }
}

fn quota(reserved: u64, max: u64) -> Quota {
    Quota { reserved, max }
}

#[derive(Clone, Debug)]
enum Step {
    Open(Priority, Quotas),
    DropHandle(usize),
    TakeSlots(usize, u16),
    GiveSlotsBack(usize),
    Register(usize, u64),
    Deregister(usize),
}

fn quotas() -> impl Strategy<Value = Quotas> {
    let quota = |size: u64| {
        let max = prop_oneof![2 => Just(u64::MAX), 1 => 0..=size];
        (prop_oneof![2 => Just(0), 2 => 0..=size / 2, 1 => 0..=size + 1], max)
            .prop_map(|(reserved, max)| Quota { reserved, max })
    };
    (quota(SIZES.slots.into()), quota(SIZES.regions), quota(BYTES))
        .prop_map(|(slots, regions, bytes)| Quotas { slots, regions, bytes, ..Quotas::default() })
}

fn step() -> impl Strategy<Value = Step> {
    let priority = prop_oneof![Just(Priority::Low), Just(Priority::Normal), Just(Priority::High)];
    prop_oneof![
        2 => (priority, quotas()).prop_map(|(priority, quotas)| Step::Open(priority, quotas)),
        1 => any::<usize>().prop_map(Step::DropHandle),
        6 => (any::<usize>(), 1..=SIZES.slots).prop_map(|(who, slots)| Step::TakeSlots(who, slots)),
        6 => (any::<usize>(), 1..=4_u16).prop_map(|(who, slots)| Step::TakeSlots(who, slots)),
        6 => any::<usize>().prop_map(Step::GiveSlotsBack),
        6 => (any::<usize>(), 1..=BYTES / 2).prop_map(|(who, len)| Step::Register(who, len)),
        4 => any::<usize>().prop_map(Step::Deregister),
    ]
}

struct Tenant {
    id: TenantId,
    priority: Priority,
    quotas: Quotas,
    reserved_slots: Range<u16>,
    handle: Option<Arc<()>>,
}

struct Portal {
    tenant: TenantId,
    slots: Range<u16>,
    reserved: bool,
}

struct Region {
    tenant: TenantId,
    id: RegionId,
    len: u64,
    /// Whether the entry, and whether the bytes come from the reservation.
    reserved: (bool, bool),
}

#[derive(Default)]
struct Model {
    tenants: Vec<Tenant>,
    portals: Vec<Portal>,
    regions: Vec<Region>,
    names: u32,
}

/// One pool as the model sees it for one tenant.
struct Seen {
    quota: Quota,
    used: u64,
    reserved_free: u64,
    rest_free: u64,
    kept: u64,
}

impl Seen {
    fn may_use_rest(&self, amount: u64) -> bool {
        amount + self.kept <= self.rest_free
    }

    /// Whether it comes from the reservation; `None` if it cannot be had.
    fn reserved(&self, amount: u64) -> Option<bool> {
        if self.used + amount > self.quota.max {
            None
        } else if amount <= self.reserved_free {
            Some(true)
        } else {
            self.may_use_rest(amount).then_some(false)
        }
    }
}

impl Model {
    fn pick(&self, who: usize) -> &Tenant {
        let live: Vec<_> =
            self.tenants.iter().filter(|it| it.id == HOST || it.handle.is_some()).collect();
        live[who % live.len()]
    }

    /// The allocations of a pool: whose, how much, whether of a reservation.
    fn allocations(&self, resource: Resource) -> Vec<(TenantId, u64, bool)> {
        let regions = self.regions.iter();
        match resource {
            Resource::CommandSlots => self
                .portals
                .iter()
                .map(|portal| (portal.tenant, portal.slots.len() as u64, portal.reserved))
                .collect(),
            Resource::Regions => regions.map(|it| (it.tenant, 1, it.reserved.0)).collect(),
            Resource::RegisteredBytes => {
                regions.map(|it| (it.tenant, it.len, it.reserved.1)).collect()
            }
            _ => unreachable!("this host serves no StaR"),
        }
    }

    fn quota(tenant: &Tenant, resource: Resource) -> Quota {
        tenant.quotas.of(resource)
    }

    fn rest(&self, resource: Resource) -> u64 {
        let capacity = match resource {
            Resource::CommandSlots => SIZES.slots.into(),
            Resource::Regions => SIZES.regions,
            Resource::RegisteredBytes => BYTES,
            _ => 0,
        };
        capacity - self.tenants.iter().map(|it| Self::quota(it, resource).reserved).sum::<u64>()
    }

    fn see(&self, tenant: &Tenant, resource: Resource) -> Seen {
        let (quota, rest) = (Self::quota(tenant, resource), self.rest(resource));
        let sum = |wanted: &dyn Fn(TenantId, bool) -> bool| -> u64 {
            let all = self.allocations(resource).into_iter();
            all.filter(|&(whose, _, reserved)| wanted(whose, reserved)).map(|it| it.1).sum()
        };
        let outranked = self.tenants.iter().any(|other| other.priority > tenant.priority);
        let percent = match tenant.priority {
            Priority::Low if outranked => 40,
            Priority::Normal if outranked => 15,
            _ => 0,
        };
        Seen {
            quota,
            used: sum(&|whose, _| whose == tenant.id),
            reserved_free: quota.reserved - sum(&|whose, reserved| whose == tenant.id && reserved),
            rest_free: rest - sum(&|_, reserved| !reserved),
            kept: (rest * percent).div_ceil(100),
        }
    }

    /// The lowest slots of those of `whose` (a reservation, or the rest) that are free and side by
    /// side.
    fn run(&self, whose: Option<&Tenant>, count: u16) -> Option<u16> {
        let is_free = |slot: u16| {
            let mut reserved = self.tenants.iter().filter(|it| it.reserved_slots.contains(&slot));
            reserved.next().map(|it| it.id) == whose.map(|it| it.id)
                && !self.portals.iter().any(|portal| portal.slots.contains(&slot))
        };
        (0..=SIZES.slots - count).find(|&start| (start..start + count).all(is_free))
    }

    fn forget_the_abandoned(&mut self) {
        let Self { tenants, portals, regions, .. } = self;
        tenants.retain(|it| {
            it.id == HOST
                || it.handle.is_some()
                || portals.iter().any(|portal| portal.tenant == it.id)
                || regions.iter().any(|region| region.tenant == it.id)
        });
    }
}

fn open(model: &mut Model, accounts: &mut Accounts, priority: Priority, quotas: Quotas) {
    let possible = [Resource::CommandSlots, Resource::Regions, Resource::RegisteredBytes]
        .into_iter()
        .all(|resource| {
            let probe = Tenant { id: HOST, priority, quotas, reserved_slots: 0..0, handle: None };
            let Quota { reserved, max } = Model::quota(&probe, resource);
            let free = model.see(&model.tenants[0], resource).rest_free;
            let room = match resource {
                Resource::CommandSlots if reserved > 0 => {
                    reserved <= free && model.run(None, reserved as u16).is_some()
                }
                _ => reserved <= free,
            };
            reserved <= max && room
        });
    let handle = Arc::new(());
    let opened = accounts.open("some", PID, priority, &quotas, Some(handle.clone()));
    assert_eq!(opened.is_ok(), possible, "{opened:?}");
    let Ok(id) = opened else { return };
    let reserved_slots = match quotas.slots.reserved as u16 {
        0 => 0..0,
        count => {
            let start = model.run(None, count).unwrap();
            start..start + count
        }
    };
    model.tenants.push(Tenant { id, priority, quotas, reserved_slots, handle: Some(handle) });
}

fn take_slots(model: &mut Model, accounts: &mut Accounts, who: usize, count: u16) {
    let tenant = model.pick(who);
    let (id, amount) = (tenant.id, u64::from(count));
    let seen = model.see(tenant, Resource::CommandSlots);
    let of_reservation =
        (amount <= seen.reserved_free).then(|| model.run(Some(tenant), count)).flatten();
    let of_rest = seen.may_use_rest(amount).then(|| model.run(None, count)).flatten();
    let taken = accounts.take_slots(id, count, |_| true);
    if seen.used + amount > seen.quota.max {
        assert!(matches!(taken, Err(AllocationError::Quota { .. })), "{taken:?}");
    } else if let Some(start) = of_reservation.or(of_rest) {
        let slots = start..start + count;
        assert_eq!(taken, Ok(slots.clone()));
        let reserved = of_reservation.is_some();
        model.portals.push(Portal { tenant: id, slots, reserved });
    } else if seen.reserved(amount).is_some() {
        assert!(matches!(taken, Err(AllocationError::Fragmented { .. })), "{taken:?}");
    } else {
        assert!(matches!(taken, Err(AllocationError::PoolEmpty { .. })), "{taken:?}");
    }
}

fn register(model: &mut Model, accounts: &mut Accounts, who: usize, len: u64) {
    let tenant = model.pick(who);
    let (id, [region, bytes]) = (
        tenant.id,
        [(Resource::Regions, 1), (Resource::RegisteredBytes, len)]
            .map(|(resource, amount)| model.see(tenant, resource).reserved(amount)),
    );
    let admitted = accounts.admit_region(id, len);
    let (Some(region), Some(bytes)) = (region, bytes) else {
        assert!(admitted.is_err());
        return;
    };
    let charge = admitted.unwrap();
    let reserved = (region, bytes);
    let is_reserved = |at: usize| charge.parts[at].1 == Source::Reservation;
    assert_eq!((is_reserved(0), is_reserved(1)), reserved);
    model.names += 1;
    let name = RegionId::from_bits(model.names);
    accounts.registered(name, charge, 0);
    model.regions.push(Region { tenant: id, id: name, len, reserved });
}

fn apply(model: &mut Model, accounts: &mut Accounts, step: Step) {
    match step {
        Step::Open(priority, quotas) => open(model, accounts, priority, quotas),
        Step::DropHandle(who) => {
            let id = model.pick(who).id;
            model.tenants.iter_mut().find(|it| it.id == id).unwrap().handle = None;
        }
        Step::TakeSlots(who, count) => take_slots(model, accounts, who, count),
        Step::GiveSlotsBack(which) if !model.portals.is_empty() => {
            let portal = model.portals.swap_remove(which % model.portals.len());
            accounts.give_slots_back(portal.slots);
        }
        Step::Register(who, len) => register(model, accounts, who, len),
        Step::Deregister(which) if !model.regions.is_empty() => {
            let region = model.regions.swap_remove(which % model.regions.len());
            accounts.deregistered(region.id);
            accounts.deregistered(region.id);
        }
        Step::GiveSlotsBack(_) | Step::Deregister(_) => {}
    }
    model.forget_the_abandoned();
    accounts.close_abandoned();
}

proptest! {
    #[test]
    fn the_books_agree_with_the_lists(steps in prop::collection::vec(step(), 1..80)) {
        let mut accounts = accounts(&config(Quotas::default())).unwrap();
        let host = Tenant {
            id: HOST,
            priority: Priority::Normal,
            quotas: Quotas::default(),
            reserved_slots: 0..0,
            handle: None,
        };
        let mut model = Model { tenants: vec![host], ..Model::default() };
        for step in steps {
            apply(&mut model, &mut accounts, step);
            for tenant in &model.tenants {
                let usage = accounts.usage(tenant.id);
                let pools = [
                    (Resource::CommandSlots, usage.slots),
                    (Resource::Regions, usage.regions),
                    (Resource::RegisteredBytes, usage.bytes),
                ];
                for (resource, usage) in pools {
                    let seen = model.see(tenant, resource);
                    prop_assert_eq!(usage.used, seen.used);
                    let most = seen.reserved_free.max(seen.rest_free.saturating_sub(seen.kept));
                    prop_assert!(usage.available <= most.min(seen.quota.max - seen.used));
                }
                prop_assert!(model.see(tenant, Resource::CommandSlots).used <= tenant.quotas.slots.max);
            }
        }
        // When everything has been given back, nothing is missing.
        model.tenants.truncate(1);
        for portal in model.portals {
            accounts.give_slots_back(portal.slots);
        }
        for region in model.regions {
            accounts.deregistered(region.id);
        }
        accounts.close_abandoned();
        prop_assert_eq!(accounts.take_slots(HOST, SIZES.slots, |_| true), Ok(0..SIZES.slots));
        let usage = accounts.usage(HOST);
        prop_assert_eq!((usage.regions.available, usage.bytes.available), (SIZES.regions, BYTES));
    }
}

fn tenant(accounts: &mut Accounts, priority: Priority, slots: Quota) -> TenantId {
    let quotas = Quotas { slots, ..Quotas::default() };
    // A handle that is never dropped.
    let held = Some(Arc::new(()));
    let id = accounts.open("batch", PID, priority, &quotas, held.clone()).unwrap();
    core::mem::forget(held);
    id
}

#[test]
fn engines_tell_tenants_apart_and_of_more_than_they_can_some_are_one() {
    let mut accounts = accounts(&config(Quotas::default())).unwrap();
    let index = |accounts: &Accounts, id| accounts.identity(id).1.index();
    assert_eq!(index(&accounts, HOST), 0);
    for expected in (1..TenantIndex::COUNT).chain([0, 1]) {
        let id = tenant(&mut accounts, Priority::Normal, quota(0, 1));
        assert_eq!(index(&accounts, id), expected);
    }
}

#[test]
fn a_reservation_is_nobody_elses_and_the_rest_is_kept_for_the_higher() {
    let mut accounts = accounts(&config(Quotas::default())).unwrap();
    let batch = tenant(&mut accounts, Priority::Low, quota(0, 12));
    let serving = tenant(&mut accounts, Priority::High, quota(4, u64::MAX));
    // 20 are the rest, 40 % of which are 8: so batch may have 12, and would by its quota.
    assert_eq!(accounts.usage(batch).slots.available, 12);
    let portal = accounts.take_slots(batch, 11, |_| true).unwrap();
    let refused = accounts.take_slots(batch, 2, |_| true).unwrap_err().to_string();
    assert!(refused.contains("`batch` has 11 of the 12"), "{refused}");
    // 15 % of 20 stay free, whoever has the others.
    let refused = accounts.take_slots(HOST, 7, |_| true).unwrap_err();
    let AllocationError::PoolEmpty { reserved_free: 0, rest_free: 6, kept_free: 3, .. } = refused
    else {
        panic!("{refused}")
    };
    assert_eq!(accounts.take_slots(HOST, 6, |_| true).unwrap().len(), 6);
    assert!(accounts.take_slots(batch, 1, |_| true).is_err());
    assert_eq!(accounts.take_slots(serving, 3, |_| true).unwrap().len(), 3, "of what is reserved");
    assert_eq!(accounts.take_slots(serving, 3, |_| true).unwrap().len(), 3, "of the rest");
    assert!(accounts.take_slots(serving, 2, |_| true).is_err());
    assert_eq!(accounts.take_slots(serving, 1, |_| true).unwrap().len(), 1);
    accounts.give_slots_back(portal);
    assert_eq!(accounts.usage(batch).slots, PoolUsage { used: 0, available: 3 });
}

#[test]
fn reservations_that_cannot_be_are_refused_with_their_values() {
    let reserving = |slots, regions, bytes| {
        let quotas = Quotas { slots, regions, bytes, ..Quotas::default() };
        accounts(&config(quotas)).unwrap_err().to_string()
    };
    let any = Quota::default;
    let refused = reserving(quota(25, 100), any(), any());
    assert!(refused.contains("25 command slots") && refused.contains("of 24, 24"), "{refused}");
    let refused = reserving(any(), quota(7, 100), any());
    assert!(refused.contains("7 regions") && refused.contains("larger `nic.regions`"), "{refused}");
    let refused = reserving(any(), any(), quota(2, 1));
    assert!(refused.contains("2 registered bytes") && refused.contains("may have 1"), "{refused}");
}

#[test]
fn reserved_slots_are_not_cut_into_pieces_by_others() {
    let mut accounts = accounts(&config(Quotas::default())).unwrap();
    let steady = tenant(&mut accounts, Priority::Normal, quota(6, 6));
    let singles: Vec<_> =
        (0..18).map(|_| accounts.take_slots(HOST, 1, |_| true).unwrap()).collect();
    for single in singles.into_iter().step_by(2) {
        accounts.give_slots_back(single);
    }
    let refused = accounts.take_slots(HOST, 2, |_| true).unwrap_err();
    assert!(
        matches!(refused, AllocationError::Fragmented { free: 9, longest: 1, .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("2 command slots were asked for"), "{refused}");
    assert_eq!(accounts.usage(HOST).slots.available, 1);
    assert_eq!(accounts.take_slots(steady, 6, |_| true).unwrap().len(), 6);
}
