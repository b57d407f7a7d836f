//! The part that all fake channels share: scripted behavior and recorded messages.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Mutex,
    time::Instant,
};

use serde_json::Value;

use super::{
    super::{WAIT_LIMIT, eventually, sink::Reply},
    ChannelBehavior,
};

/// A received message, whether it was sent on or not.
#[derive(Clone, Debug)]
pub(crate) struct RecordedMessage {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) to: String,
    pub(crate) body: Value,
    /// The caller's id: `biz_opaque_callback_data`, or `id` at Evolution Go.
    pub(crate) our_id: Option<String>,
    /// The channel's id, if the message was sent to its recipient.
    pub(crate) sent_id: Option<String>,
}

/// Precedence: `by_recipient`, `first_by_recipient`, `next`, `share`, `default`.
#[derive(Debug, Default)]
struct BehaviorScript {
    by_recipient: HashMap<String, ChannelBehavior>,
    first_by_recipient: HashMap<String, VecDeque<ChannelBehavior>>,
    next: VecDeque<ChannelBehavior>,
    share: Option<(u64, ChannelBehavior)>,
    seen: HashSet<String>,
    default: ChannelBehavior,
}

/// Records messages and handles them as scripted.
#[derive(Debug, Default)]
pub(crate) struct FakeChannel {
    script: Mutex<BehaviorScript>,
    messages: Mutex<Vec<RecordedMessage>>,
}

impl FakeChannel {
    /// Sets the behavior for all messages to a recipient.
    pub(crate) fn set_for_recipient(&self, to: &str, behavior: ChannelBehavior) {
        self.script.lock().unwrap().by_recipient.insert(to.to_owned(), behavior);
    }

    /// Sets the behavior for the first messages to a recipient, one after the other.
    pub(crate) fn set_first_for_recipient(
        &self,
        to: &str,
        behaviors: impl IntoIterator<Item = ChannelBehavior>,
    ) {
        let behaviors = behaviors.into_iter().collect();
        self.script.lock().unwrap().first_by_recipient.insert(to.to_owned(), behaviors);
    }

    /// Queues behavior for the next messages to any recipient.
    pub(crate) fn queue_next(&self, behaviors: impl IntoIterator<Item = ChannelBehavior>) {
        self.script.lock().unwrap().next.extend(behaviors);
    }

    /// Sets the behavior for the first message to about `percent` of all recipients. The same
    /// recipients are chosen every time, also after a restart of the caller.
    pub(crate) fn set_for_percent_of_recipients(&self, percent: u64, behavior: ChannelBehavior) {
        self.script.lock().unwrap().share = Some((percent, behavior));
    }

    /// Sets the behavior for all other messages.
    pub(crate) fn set_default(&self, behavior: ChannelBehavior) {
        self.script.lock().unwrap().default = behavior;
    }

    /// All received messages in order.
    pub(crate) fn messages(&self) -> Vec<RecordedMessage> {
        self.messages.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.messages.lock().unwrap().len()
    }

    /// Waits until at least `count` messages were received.
    pub(crate) async fn wait_for_messages(&self, count: usize) -> Vec<RecordedMessage> {
        eventually(WAIT_LIMIT, || async { (self.count() >= count).then(|| self.messages()) }).await
    }

    /// The ids sent to each recipient, in order and with repetitions.
    pub(crate) fn sent(&self) -> BTreeMap<String, Vec<String>> {
        let mut sent: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for message in self.messages.lock().unwrap().iter() {
            if let Some(id) = &message.sent_id {
                sent.entry(message.to.clone()).or_default().push(id.clone());
            }
        }
        sent
    }

    /// Records a message and handles it as scripted. `sent_id` is the id and `success` the response if
    /// it is sent.
    pub(super) fn handle(
        &self,
        mut message: RecordedMessage,
        sent_id: String,
        success: Reply,
    ) -> Reply {
        let behavior = self.script.lock().unwrap().choose(&message.to);
        let (is_sent, reply) = run_behavior(behavior, success);
        message.sent_id = is_sent.then_some(sent_id);
        self.messages.lock().unwrap().push(message);
        reply
    }
}

impl BehaviorScript {
    fn choose(&mut self, to: &str) -> ChannelBehavior {
        let is_new = self.seen.insert(to.to_owned());
        if let Some(behavior) = self.by_recipient.get(to) {
            return behavior.clone();
        }
        let queued = self.first_by_recipient.get_mut(to).and_then(VecDeque::pop_front);
        if let Some(behavior) = queued.or_else(|| self.next.pop_front()) {
            return behavior;
        }
        match &self.share {
            Some((percent, behavior)) if is_new && is_chosen_recipient(to, *percent) => {
                behavior.clone()
            }
            _ => self.default.clone(),
        }
    }
}

/// Whether a recipient is among the chosen `percent` of all.
pub(crate) fn is_chosen_recipient(to: &str, percent: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    to.hash(&mut hasher);
    hasher.finish() % 100 < percent
}

/// Returns whether the message is sent, and the reply to the caller.
fn run_behavior(behavior: ChannelBehavior, success: Reply) -> (bool, Reply) {
    match behavior {
        ChannelBehavior::Send => (true, success),
        ChannelBehavior::Respond(status, body) => (false, json_reply(status, &body)),
        ChannelBehavior::SendThenRespond(status, body) => (true, json_reply(status, &body)),
        ChannelBehavior::HangAfterBody => (true, Reply::Hang),
        ChannelBehavior::CloseAfterBody => (true, Reply::Close),
        ChannelBehavior::CloseBefore => (false, Reply::Close),
        ChannelBehavior::After(wait, then) => {
            let (is_sent, reply) = run_behavior(*then, success);
            (is_sent, reply.after(wait))
        }
    }
}

pub(super) fn json_reply(status: u16, body: &Value) -> Reply {
    let reply = Reply::status(status).header("content-type", "application/json; charset=utf-8");
    reply.body(body.to_string())
}
