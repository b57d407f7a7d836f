//! What all services have in common: who gets which behaviour, and what came.

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

/// A message as it came, whatever became of it. Its place in the list is the order.
#[derive(Clone, Debug)]
pub(crate) struct RecordedMessage {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) to: String,
    pub(crate) body: Value,
    /// What the caller calls it: `biz_opaque_callback_data`, or the `id` at Evolution Go.
    pub(crate) our_id: Option<String>,
    /// What the service calls it, if it was sent to its recipient.
    pub(crate) sent_id: Option<String>,
}

/// Which behaviour who gets; the first that is there: by recipient, the next, the part, the rest.
#[derive(Debug, Default)]
struct BehaviorScript {
    always: HashMap<String, ChannelBehavior>,
    first: HashMap<String, VecDeque<ChannelBehavior>>,
    next: VecDeque<ChannelBehavior>,
    part: Option<(u64, ChannelBehavior)>,
    seen: HashSet<String>,
    rest: ChannelBehavior,
}

/// Takes messages.
#[derive(Debug, Default)]
pub(crate) struct FakeChannel {
    script: Mutex<BehaviorScript>,
    messages: Mutex<Vec<RecordedMessage>>,
}

impl FakeChannel {
    /// What one recipient's messages get, from now on.
    pub(crate) fn set_for_recipient(&self, to: &str, behavior: ChannelBehavior) {
        self.script.lock().unwrap().always.insert(to.to_owned(), behavior);
    }

    /// What the first messages to a recipient get, one after the other; then it is as with all.
    pub(crate) fn set_first_for_recipient(
        &self,
        to: &str,
        behaviors: impl IntoIterator<Item = ChannelBehavior>,
    ) {
        let behaviors = behaviors.into_iter().collect();
        self.script.lock().unwrap().first.insert(to.to_owned(), behaviors);
    }

    /// What the next messages get, whoever they are for.
    pub(crate) fn queue_next(&self, behaviors: impl IntoIterator<Item = ChannelBehavior>) {
        self.script.lock().unwrap().next.extend(behaviors);
    }

    /// What the first message gets of about so many of a hundred recipients. It is the same ones
    /// whenever they come, also after a restart of the caller.
    pub(crate) fn set_for_share(&self, percent: u64, behavior: ChannelBehavior) {
        self.script.lock().unwrap().part = Some((percent, behavior));
    }

    /// What all others get.
    pub(crate) fn set_default(&self, behavior: ChannelBehavior) {
        self.script.lock().unwrap().rest = behavior;
    }

    /// All messages that came, in order.
    pub(crate) fn messages(&self) -> Vec<RecordedMessage> {
        self.messages.lock().unwrap().clone()
    }

    /// How many came.
    pub(crate) fn count(&self) -> usize {
        self.messages.lock().unwrap().len()
    }

    /// Waits until so many have come.
    pub(crate) async fn wait_for_messages(&self, count: usize) -> Vec<RecordedMessage> {
        eventually(WAIT_LIMIT, || async { (self.count() >= count).then(|| self.messages()) }).await
    }

    /// What each recipient was sent: the ids in the order in which they went out, with repetitions.
    pub(crate) fn sent(&self) -> BTreeMap<String, Vec<String>> {
        let mut sent: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for message in self.messages.lock().unwrap().iter() {
            if let Some(id) = &message.sent_id {
                sent.entry(message.to.clone()).or_default().push(id.clone());
            }
        }
        sent
    }

    /// Does with a message what the script says. `name` is what the service would call it, `done`
    /// the answer when it was sent.
    pub(super) fn take(
        &self,
        mut message: RecordedMessage,
        name: String,
        done: (u16, Value),
    ) -> Reply {
        let behavior = self.script.lock().unwrap().choose(&message.to);
        let (is_sent, reply) = play(behavior, done);
        message.sent_id = is_sent.then_some(name);
        self.messages.lock().unwrap().push(message);
        reply
    }
}

impl BehaviorScript {
    fn choose(&mut self, to: &str) -> ChannelBehavior {
        let is_new = self.seen.insert(to.to_owned());
        if let Some(behavior) = self.always.get(to) {
            return behavior.clone();
        }
        let queued = self.first.get_mut(to).and_then(VecDeque::pop_front);
        if let Some(behavior) = queued.or_else(|| self.next.pop_front()) {
            return behavior;
        }
        match &self.part {
            Some((percent, behavior)) if is_new && is_in_share(to, *percent) => behavior.clone(),
            _ => self.rest.clone(),
        }
    }
}

/// Whether a recipient belongs to so many of a hundred.
pub(crate) fn is_in_share(to: &str, percent: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    to.hash(&mut hasher);
    hasher.finish() % 100 < percent
}

/// Whether the message goes out, and what the caller sees.
fn play(behavior: ChannelBehavior, done: (u16, Value)) -> (bool, Reply) {
    match behavior {
        ChannelBehavior::Send => (true, json_reply(done.0, &done.1)),
        ChannelBehavior::Respond(status, body) => (false, json_reply(status, &body)),
        ChannelBehavior::SendThenRespond(status, body) => (true, json_reply(status, &body)),
        ChannelBehavior::HangAfterBody => (true, Reply::Hang),
        ChannelBehavior::CloseAfterBody => (true, Reply::Close),
        ChannelBehavior::CloseBefore => (false, Reply::Close),
        ChannelBehavior::After(wait, then) => {
            let (is_sent, reply) = play(*then, done);
            (is_sent, reply.after(wait))
        }
    }
}

/// An answer with JSON.
pub(super) fn json_reply(status: u16, body: &Value) -> Reply {
    let reply = Reply::status(status).header("content-type", "application/json; charset=utf-8");
    reply.body(body.to_string())
}
