//! Limits on the work and the stack of one filter run.
//!
//! jaq has no limits of its own, and a filter cannot be stopped from outside without a thread per
//! run. So our callbacks charge a budget: [`MeteredTerms`] for each term that jaq evaluates, and
//! every operation on a value for its cost. Each charge also checks the depth of the stack. When a
//! budget is spent, the run is unwound, which `try` in the filter cannot catch, and [`run_metered`]
//! reports it. This requires `panic = "unwind"`, the default. The panic hook is not called.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use jaq_core::{DataT, Lut, data::HasLut};

use super::value::JqValue;

/// A quarter of a thread's default stack. The rest is ample for the caller, for unwinding and for
/// destructors.
const STACK_BYTES_MAX: usize = 512 << 10;

thread_local! {
    static STEPS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static STACK_START: Cell<usize> = const { Cell::new(0) };
}

/// Why a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JqStopReason {
    TooMuchWork,
    /// Nested calls or values would exhaust the stack.
    TooDeep,
    /// jaq panicked: a bug there, which must not affect anything else.
    Panicked,
}

/// Runs `work` with a budget of `steps`, measured from the current stack position.
pub(super) fn run_metered<T>(steps: u64, work: impl FnOnce() -> T) -> Result<T, JqStopReason> {
    STEPS_LEFT.set(steps);
    STACK_START.set(stack_address());
    // Nothing that `work` leaves half done is used afterwards.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    outcome.map_err(|payload| payload.downcast_ref().copied().unwrap_or(JqStopReason::Panicked))
}

/// Takes `steps` from the budget; unwinds the run if the budget or the stack is used up.
pub(super) fn charge(steps: usize) {
    match STEPS_LEFT.get().checked_sub(steps as u64) {
        Some(left) => STEPS_LEFT.set(left),
        None => stop(JqStopReason::TooMuchWork),
    }
    if stack_address().abs_diff(STACK_START.get()) > STACK_BYTES_MAX {
        stop(JqStopReason::TooDeep);
    }
}

/// Unwinds the run.
pub(super) fn stop(reason: JqStopReason) -> ! {
    // Destructors run on the way out; a second stop in one of them would abort the process.
    STEPS_LEFT.set(u64::MAX);
    STACK_START.set(stack_address());
    resume_unwind(Box::new(reason))
}

/// The approximate address of the top of the stack.
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here).addr()
}

/// The types that filters are compiled for: metered values and metered terms.
pub(super) struct JqData;

impl DataT for JqData {
    type V<'a> = JqValue;
    type Data<'a> = MeteredTerms<'a>;
}

/// The terms of a compiled filter. jaq calls [`HasLut::lut`] whenever it evaluates one.
#[derive(Clone)]
pub(super) struct MeteredTerms<'a>(pub(super) &'a Lut<JqData>);

impl<'a> HasLut<'a, JqData> for MeteredTerms<'a> {
    fn lut(&self) -> &'a Lut<JqData> {
        charge(1);
        self.0
    }
}
