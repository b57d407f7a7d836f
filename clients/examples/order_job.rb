# frozen_string_literal: true

# A Sidekiq job that processes each message once, also if it is enqueued many times.
#
#   SUREHOOK_URL=https://surehook.example.com SUREHOOK_TOKEN=… ORDERS=orders.ndjson sidekiq -r ./order_job.rb

require "json"
require "sidekiq"
require "surehook"

LEASE = ENV.fetch("LEASE", "30").to_f
SUREHOOK = Surehook::Client.new(ENV.fetch("SUREHOOK_URL"), ENV.fetch("SUREHOOK_TOKEN"))

class OrderJob
  include Sidekiq::Worker

  def perform(message_id, order)
    SUREHOOK.once("orders", message_id, lease: LEASE) { |claim| create_order(claim, order) }
  rescue Surehook::InProgressError => busy
    # Not `return`: if the other worker has crashed, this worker does the work after its lease.
    self.class.perform_in(busy.retry_after, message_id, order)
  end

  private

  # Appends a line to a file; yours writes to a database and calls other services.
  def create_order(claim, order)
    receipt = { order: order["id"], operation: claim.operation_id, resumed: claim.resumed }
    File.open(ENV.fetch("ORDERS"), "a") do |orders|
      orders.flock(File::LOCK_EX)
      orders.puts(JSON.generate(receipt))
    end
    receipt
  end
end
