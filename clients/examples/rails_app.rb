# frozen_string_literal: true

# A Rails controller that processes each webhook once, as an application in one file.
#
#   SUREHOOK_URL=https://surehook.example.com SUREHOOK_TOKEN=… ORDERS=orders.ndjson PORT=8000 ruby rails_app.rb

require "action_controller/railtie"
require "json"
require "surehook"
require "webrick"

LEASE = ENV.fetch("LEASE", "30").to_f
SUREHOOK = Surehook::Client.new(ENV.fetch("SUREHOOK_URL"), ENV.fetch("SUREHOOK_TOKEN"))

class OrdersController < ActionController::API
  rescue_from Surehook::InProgressError do |busy|
    response.headers["Retry-After"] = busy.retry_after.to_s
    render json: { error: busy.message }, status: :service_unavailable
  end

  def create
    render json: SUREHOOK.once("orders", request.headers["webhook-id"], lease: LEASE) { |claim| create_order(claim) }
  end

  private

  # Appends a line to a file; yours writes to a database and calls other services.
  def create_order(claim)
    receipt = { order: params.require(:id), operation: claim.operation_id, resumed: claim.resumed }
    File.open(ENV.fetch("ORDERS"), "a") do |orders|
      orders.flock(File::LOCK_EX)
      orders.puts(JSON.generate(receipt))
    end
    receipt
  end
end

class OrdersApplication < Rails::Application
  config.eager_load = true
  config.hosts.clear
  config.secret_key_base = "only for this example"
  routes.append { post "/orders", to: "orders#create" }
end

OrdersApplication.initialize!
Rack::Handler::WEBrick.run(Rails.application, Host: "127.0.0.1", Port: ENV.fetch("PORT", "8000").to_i)
