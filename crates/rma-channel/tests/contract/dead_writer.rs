//! Others go on, in time, when a sender dies or sleeps between its reservation and its message.

use core::time::Duration;

use rma_contract::hole::{Fate, KINDS, Scene};

/// How many scenes are drawn for each kind.
const SEEDS: u64 = 10;

#[test]
fn others_go_on_within_the_bound_whoever_stops_between_reservation_and_message() {
    for kind in KINDS {
        let mut worst: f64 = 0.0;
        for seed in 0..SEEDS {
            let scene = Scene::drawn(kind, seed);
            let timeline = scene.run();
            let over = timeline.took.as_secs_f64() / timeline.bound.as_secs_f64();
            assert!(over <= 1.0, "{scene:?}: seed {seed}, {over}\n{timeline}");
            worst = worst.max(over);
        }
        println!("{kind} ({}): {SEEDS} seeds, {worst:.4} of the bound at most", kind as u8);
        // It takes the time of a hole at least.
        assert!(worst > 0.3, "{kind}: {worst}");
    }
}

#[test]
fn the_timeline_says_when_the_hole_was_seen_and_taken_back_and_what_came_meanwhile() {
    for kind in KINDS {
        for fate in [Fate::Dies, Fate::Sleeps(Duration::from_millis(200))] {
            let scene = Scene::plain(kind, fate);
            let timeline = scene.run();
            println!("{kind} ({}), {fate:?}\n{timeline}\n", kind as u8);
            let times = [timeline.stopped, timeline.seen, timeline.recovered, timeline.gone_on];
            assert!(timeline.took <= timeline.bound, "{timeline}");
            assert!(times.is_sorted() && timeline.woke.is_some() == (fate != Fate::Dies));
            let of_who: u64 = timeline.came.iter().map(|came| came[scene.who]).sum();
            let of_other: u64 = timeline.came.iter().map(|came| came[0]).sum();
            // It misses what it would have sent while it slept, or was dead.
            assert!(of_who >= 2 && of_other > of_who + 5, "{of_who}, {of_other}");
        }
    }
}
