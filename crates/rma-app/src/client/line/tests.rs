use core::time::Duration;

use proptest::prelude::*;

use super::*;

/// An event of a line.
#[derive(Clone, Copy, Debug)]
enum Event {
    Come {
        class: ClassOfService,
        is_fenced: bool,
        patience: Option<u64>,
    },
    Fence,
    /// Somebody gives up: which, if there are so many.
    GiveUp(usize),
    /// A call is over: which.
    End(usize),
    Time(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let class = prop_oneof![Just(ClassOfService::Latency), Just(ClassOfService::Throughput)];
    let patience = prop_oneof![Just(None), (0..50_u64).prop_map(Some)];
    let come = (class, 0..8_u8, patience).prop_map(|(class, fenced, patience)| Event::Come {
        class,
        is_fenced: fenced == 0,
        patience,
    });
    prop_oneof![
        6 => come,
        1 => Just(Event::Fence),
        1 => any::<usize>().prop_map(Event::GiveUp),
        5 => any::<usize>().prop_map(Event::End),
        1 => (0..10_u64).prop_map(Event::Time),
    ]
}

/// One who waits, as the test remembers it: in the order of coming.
#[derive(Clone, Copy, Debug)]
struct Guest {
    task: u32,
    ticket: Ticket,
    class: ClassOfService,
    fences: u64,
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct World {
    line: Line,
    places: Places,
    guests: Vec<Guest>,
    /// Classes of the calls that are under way.
    calls: Vec<ClassOfService>,
    now: Instant,
    next: u32,
    fences: u64,
    /// Fences before the last who went.
    passed: u64,
    /// The class that went last while both could.
    turn: Option<ClassOfService>,
}

impl World {
    fn go(&mut self, class: ClassOfService) {
        self.places.take(class);
        self.calls.push(class);
    }

    /// Lets those go who may, and holds each against the rules.
    fn settle(&mut self) {
        while let Some(expired) = self.line.expire(self.now) {
            let at = self.guests.iter().position(|it| it.task == expired).expect("it waits");
            let guest = self.guests.remove(at);
            assert!(guest.deadline.is_some_and(|at| at <= self.now), "{guest:?}");
        }
        while let Some(next) = self.line.next(self.places) {
            self.line.serve(&next);
            let at = self.guests.iter().position(|it| it.task == next.task).expect("it waits");
            let guest = self.guests[at];
            let before = &self.guests[..at];
            assert!(before.iter().all(|it| it.class != guest.class), "first come, first served");
            assert!(before.iter().all(|it| it.fences == guest.fences), "nobody passes a fence");
            assert_eq!(next.is_fenced, guest.fences != self.passed, "{guest:?}");
            let could = |class| {
                let same_part = |it: &&Guest| it.fences == guest.fences && it.class == class;
                self.guests.iter().any(|it| same_part(&it)) && self.places.admits(class)
            };
            let both = ClassOfService::ALL.iter().all(|&class| could(class));
            if both {
                assert_ne!(self.turn, Some(guest.class), "the classes take turns");
            }
            self.turn = Some(guest.class);
            self.passed = guest.fences;
            self.guests.remove(at);
            self.go(guest.class);
        }
        // Nobody waits who could go.
        if let Some(first) = self.guests.first() {
            let part = self.guests.iter().filter(|it| it.fences == first.fences);
            for guest in part {
                assert!(!self.places.admits(guest.class), "{guest:?} waits beside a free place");
            }
        }
        assert_eq!(self.line.len(), self.guests.len());
        assert_eq!(self.line.is_empty(), self.guests.is_empty());
        let deadline = self.guests.iter().filter_map(|it| it.deadline).min();
        assert_eq!(self.line.first_deadline(), deadline);
        assert_eq!(self.places.taken(), self.calls.len());
    }

    fn come(&mut self, class: ClassOfService, is_fenced: bool, patience: Option<u64>) {
        if self.line.lets_pass(class, is_fenced) && self.places.admits(class) {
            let same = self.guests.iter().all(|it| it.class != class && it.fences == self.fences);
            assert!(same && (!is_fenced || self.guests.is_empty()), "it passes nobody it may not");
            assert_eq!(self.line.passes_fence(), self.passed != self.fences);
            self.passed = self.fences;
            self.go(class);
            return;
        }
        if is_fenced {
            self.line.fence();
            self.fences += 1;
        }
        let deadline = patience.map(|nanos| self.now + Duration::from_nanos(nanos));
        let (task, fences) = (self.next, self.fences);
        self.next += 1;
        let ticket = self.line.push(task, class, deadline);
        self.guests.push(Guest { task, ticket, class, fences, deadline });
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Come { class, is_fenced, patience } => self.come(class, is_fenced, patience),
            Event::Fence => {
                self.line.fence();
                self.fences += 1;
            }
            Event::GiveUp(which) if !self.guests.is_empty() => {
                let guest = self.guests.remove(which % self.guests.len());
                self.line.remove(guest.ticket);
            }
            Event::End(which) if !self.calls.is_empty() => {
                let class = self.calls.swap_remove(which % self.calls.len());
                self.places.give_back(class);
            }
            Event::Time(nanos) => self.now = self.now + Duration::from_nanos(nanos),
            Event::GiveUp(_) | Event::End(_) => {}
        }
        self.settle();
    }
}

proptest! {
    #[test]
    fn the_first_of_a_class_goes_first_and_nobody_passes_a_fence_or_is_forgotten(
        calls in 1..20_u16,
        events in prop::collection::vec(event(), 0..400),
    ) {
        let mut world = World {
            line: Line::default(),
            places: Places::new(calls),
            guests: Vec::new(),
            calls: Vec::new(),
            now: Instant::ZERO,
            next: 0,
            fences: 0,
            passed: 0,
            turn: None,
        };
        events.into_iter().for_each(|event| world.happens(event));
        while !world.calls.is_empty() {
            world.happens(Event::End(0));
        }
        prop_assert!(world.guests.is_empty(), "all have been served");
    }
}

#[test]
fn bulk_calls_leave_an_eighth_of_the_places_to_small_ones() {
    for (calls, throughput_max) in [(1, 1), (2, 1), (8, 7), (15, 14), (16, 14), (1024, 896)] {
        let mut places = Places::new(calls);
        while places.admits(ClassOfService::Throughput) {
            places.take(ClassOfService::Throughput);
        }
        assert_eq!(places.taken(), throughput_max);
        while places.admits(ClassOfService::Latency) {
            places.take(ClassOfService::Latency);
        }
        assert_eq!(places.taken(), calls.into());
    }
}
